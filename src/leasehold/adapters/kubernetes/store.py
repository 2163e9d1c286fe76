"""`ports.store.Store` on a Kubernetes API server.

Each write is one request and each answer one of the port's errors. Writes that are given together
travel at once, as many as the client has connections; order is kept between those of one object.
What is listed and watched of Pods and Nodes is only what we read of them (`projection`).
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from urllib.parse import quote

import msgspec

from leasehold.adapters.kubernetes.client import APPLY, JSON_PATCH, ApiRequest, Client, Lane
from leasehold.adapters.kubernetes.events import from_series, to_series
from leasehold.adapters.kubernetes.places import Place, place_of
from leasehold.adapters.kubernetes.pods import (
    disruption_budget_of,
    dressed,
    has_mates,
    is_ours,
    service_of,
)
from leasehold.adapters.kubernetes.projection import Read, reader_of
from leasehold.adapters.kubernetes.quotas import quota_problem
from leasehold.adapters.kubernetes.refusals import Key
from leasehold.adapters.kubernetes.volumes import Volumes
from leasehold.adapters.kubernetes.watching import KubernetesWatch
from leasehold.adapters.objects.rules import OBJECT_BYTES_MAX, key_of, problems_of, stamp_conditions
from leasehold.core.names import Wire
from leasehold.core.objects import tenure
from leasehold.core.objects.wire import list_at, part, text_at, version_at
from leasehold.core.units import SECOND, format_instant
from leasehold.ports.runtime import Clock
from leasehold.ports.store import (
    AlreadyExists,
    Answer,
    Answers,
    Conflict,
    Invalid,
    Listing,
    NotFound,
    StoreError,
    Unavailable,
    WatchExpired,
    Write,
    perform,
    written_object,
)
from leasehold.ports.trial import Trial, TriedPod

COMPANIES_MAX = 10_000
PAGE = 500  # objects in one chunk of a listing
_VITAL = frozenset({"LedgerHead", tenure.KIND})
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, object]).decode


class _Page(msgspec.Struct):
    metadata: dict[str, object] = {}
    items: list[msgspec.Raw] | None = None


_decode_page = msgspec.json.Decoder(_Page).decode


class _Company:
    """What the pods of a Run have in common: who makes the first of them makes it, for all."""

    def __init__(self) -> None:
        self.meeting = asyncio.Lock()
        self.budget: bytes | None = None  # for disruptions, as it was written last


class KubernetesStore:
    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._version = 0  # the highest that the server told us
        self._companies: dict[Key, _Company] = {}  # by the Service of a Run
        self._alone: dict[tuple[str, str], Wire] = {}  # pods made without what they share

    @property
    def companies(self) -> Sequence[Key]:
        """Services of Runs, each with a disruption budget of its name, that are known."""
        return tuple(key for key, each in self._companies.items() if each.budget is not None)

    async def get(self, kind: str, namespace: str, name: str) -> Wire:
        place, key = place_of(kind), (kind, namespace, name)
        request = ApiRequest("GET", place.one(namespace, name), key, lane=_lane(kind))
        return self._noted(place, await self._client.ask(request))

    async def list(self, kind: str) -> Listing:
        place = place_of(kind)
        read = reader_of(kind, place.api_version)
        items: list[Wire] = []
        version = await self._pages(place, lambda raw: items.append(read(raw)), items.clear)
        return Listing(sorted(items, key=_name_of), version)

    async def scan(self, kind: str, see: Callable[[bytes], None]) -> int:
        place = place_of(kind)
        read = reader_of(kind, place.api_version)
        try:
            return await self._pages(place, lambda raw: see(_encode(read(raw))), None)
        except WatchExpired:
            raise Unavailable(kind) from None  # it took too long: its caller begins anew

    async def moment(self, kinds: Sequence[str], see: Callable[[str, bytes], None]) -> int:
        """All objects of several kinds as of one version, which is returned: no write lies between
        them. Raises `WatchExpired` when that took longer than the server remembers."""
        version = 0
        for kind in kinds:
            place = place_of(kind)
            read = reader_of(kind, place.api_version)

            def shown(raw: bytes, kind: str = kind, read: Read = read) -> None:
                see(kind, _encode(read(raw)))

            version = await self._pages(place, shown, None, exactly=version)
        return version

    async def _pages(
        self,
        place: Place,
        see: Callable[[bytes], None],
        forget: Callable[[], None] | None,
        *,
        exactly: int = 0,
    ) -> int:
        """All objects at one version, or at this one, chunk by chunk. A listing that took so long
        that the server has forgotten it begins again, where what was seen can be forgotten too."""
        key: Key = (place.kind, "", "")
        while True:
            query, version = {"limit": str(PAGE)}, exactly
            if exactly:
                query |= {"resourceVersion": str(exactly), "resourceVersionMatch": "Exact"}
            try:
                while True:
                    page = _decode_page(await self._client.read(place.all(), query, key=key))
                    version = version or version_at(page.metadata)
                    for raw in page.items or ():
                        see(bytes(raw))
                    token = text_at(page.metadata, "continue")
                    if not token:
                        self._version = max(self._version, version)
                        return version
                    query = {"limit": str(PAGE), "continue": token}
            except WatchExpired:
                if forget is None:
                    raise
                forget()

    def watch(self, kind: str, version: int) -> KubernetesWatch:
        is_known = version <= self._version
        return KubernetesWatch(
            self._client, self._clock, place_of(kind), version, is_known=is_known
        )

    async def create(self, obj: Wire) -> Wire:
        if is_ours(obj):
            return await self._create_pod(obj)
        place, key = _place(obj), key_of(obj)
        return await self._sent_whole(place, obj, "POST", place.all(key[1]))

    async def _create_pod(self, pod: Wire) -> Wire:
        """Make the pod and what the pods of its Run share at once; a pod is not bound before both
        are there."""
        _, namespace, name = key_of(pod)
        self._alone[namespace, name] = pod
        made, shared = await asyncio.gather(
            self._sent_whole(place_of("Pod"), dressed(pod), "POST", place_of("Pod").all(namespace)),
            self._companions(pod),
            return_exceptions=True,
        )
        if shared is None:
            del self._alone[namespace, name]
        for each in (shared, made):
            if isinstance(each, BaseException):
                raise each
        assert isinstance(made, dict), "it was made"
        return made

    async def rehearse(self, trials: Sequence[Trial]) -> Sequence[TriedPod | StoreError]:
        """Each as the server would make it now, or why it would not; nothing is made. What one pod
        is allowed and the whole gang never can be is refused, too."""
        namespaces = dict.fromkeys(key_of(each.pod)[1] for each in trials)
        quotas, answers = await asyncio.gather(
            asyncio.gather(*map(self._quotas, namespaces)),
            asyncio.gather(*map(self._tried, trials)),
        )
        known = dict(zip(namespaces, quotas, strict=True))

        async def judged(trial: Trial, answer: TriedPod | StoreError) -> TriedPod | StoreError:
            if isinstance(answer, StoreError):
                return answer
            key = key_of(trial.pod)
            if not quota_problem(known[key[1]], trial, answer.pod):
                return answer
            # Whoever raised a quota and says so here must not be answered from before.
            problem = quota_problem(await self._quotas(key[1], is_fresh=True), trial, answer.pod)
            return Invalid([("", problem)], *key) if problem else answer

        return await asyncio.gather(*map(judged, trials, answers))

    async def _tried(self, trial: Trial) -> TriedPod | StoreError:
        key = key_of(trial.pod)
        data = _encode({**dressed(trial.pod), "kind": "Pod"})
        path = place_of("Pod").all(key[1])
        try:
            answer = _decode(
                await self._client.ask(ApiRequest("POST", path, key, {"dryRun": "All"}, data=data))
            )
            return TriedPod(pod=answer, nodes=await Volumes(self._client).reached_from(answer))
        except StoreError as error:
            return error

    async def _quotas(self, namespace: str, *, is_fresh: bool = False) -> Sequence[Wire]:
        """None where nobody tells us: then the server refuses pods when they are made. A server
        that is asked for what is surely so waits for the next word of etcd, for up to 100 ms, and
        every Run with it; what it knows by now will do for all but a refusal."""
        path = f"/api/v1/namespaces/{quote(namespace, safe='')}/resourcequotas"
        query = {} if is_fresh else {"resourceVersion": "0"}
        try:
            listed = list_at(_decode(await self._client.read(path, query)), "items")
        except StoreError:
            return []
        return [each for each in listed if isinstance(each, dict)]

    async def _companions(self, pod: Wire) -> None:
        """Make what several pods of a Run have in common, before the first of them is bound: the
        Service by which they find each other, and how many of them must stay at a time."""
        if not has_mates(pod):
            return
        service, place = service_of(pod), place_of("Service")
        key = key_of(service)
        budget = _encode(disruption_budget_of(pod))
        if len(self._companies) >= COMPANIES_MAX:
            self._companies.clear()  # asking again is harmless
        company = self._companies.setdefault(key, _Company())
        async with company.meeting:
            if company.budget != budget:
                applied = self._client.ask(_applied(key[1], key[2], budget))
                if company.budget is None:
                    await asyncio.gather(self._made_once(place, service), applied)
                else:
                    await applied
            company.budget = budget

    async def _made_once(self, place: Place, obj: Wire) -> None:
        with suppress(AlreadyExists):
            await self._sent_whole(place, obj, "POST", place.all(key_of(obj)[1]))

    async def update(self, obj: Wire) -> Wire:
        place, key = _place(obj), key_of(obj)
        if not text_at(part(obj, "metadata"), "resourceVersion"):
            raise Invalid([("metadata.resourceVersion", "is required to update")], *key)
        if is_ours(obj) and not text_at(part(obj, "spec"), "nodeName"):
            # Its maker may have died before it had made what its pods share.
            await self._companions(obj)
        return await self._sent_whole(place, obj, "PUT", place.one(key[1], key[2]))

    async def _sent_whole(self, place: Place, obj: Wire, method: str, path: str) -> Wire:
        """A refusal names its paths as our other stores do, where both would refuse."""
        said = to_series(obj) if place.kind == "Event" else {**obj, "kind": place.called}
        data = _bounded(_encode(said), key_of(obj))
        request = ApiRequest(method, path, key_of(obj), data=data, lane=_lane(place.kind))
        try:
            return self._noted(place, await self._client.ask(request))
        except (Invalid, NotFound) as refused:
            problems = problems_of(obj)
            if not problems:
                raise
            raise Invalid(problems, *key_of(obj)) from refused

    async def patch_status(
        self, kind: str, namespace: str, name: str, status: Wire, *, version: int | None
    ) -> Wire:
        place, key = place_of(kind), (kind, namespace, name)
        if _has_unstamped(status):
            before = await self.get(kind, namespace, name)
            status = _decode(_encode(status))  # the caller's stays as it is
            stamp_conditions(part(before, "status"), status, format_instant(self._clock.now()))
        changes: list[Wire] = [{"op": "add", "path": "/status", "value": status}]
        if version is not None:
            where = "/metadata/resourceVersion"
            changes.append({"op": "add", "path": where, "value": str(version)})
        request = ApiRequest(
            "PATCH",
            place.one(namespace, name, "status"),
            key,
            data=_bounded(_encode(changes), key),
            content_type=JSON_PATCH,
        )
        return self._noted(place, await self._client.ask(request))

    async def bind(
        self, namespace: str, name: str, node: str, *, uid: str, version: int | None = None
    ) -> None:
        alone = self._alone.get((namespace, name))
        if alone is not None:
            await self._companions(alone)
            self._alone.pop((namespace, name), None)
        metadata: Wire = {"name": name, "namespace": namespace, "uid": uid}
        if version is not None:
            metadata["resourceVersion"] = str(version)
        binding: Wire = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": metadata,
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        path = place_of("Pod").one(namespace, name, "binding")
        await self._client.write("POST", path, binding, key=("Pod", namespace, name))

    async def set_finalizers(
        self,
        kind: str,
        namespace: str,
        name: str,
        finalizers: Sequence[str],
        *,
        known: Sequence[str],
        uid: str | None = None,
    ) -> Wire:
        place, key, where = place_of(kind), (kind, namespace, name), "/metadata/finalizers"
        changes: list[Wire] = [
            # None where there are none: then the field is not there at all.
            {"op": "test", "path": where, "value": list(known) or None},
            {"op": "add", "path": where, "value": list(finalizers)},
        ]
        if uid is not None:
            changes.insert(0, {"op": "test", "path": "/metadata/uid", "value": uid})
        request = ApiRequest(
            "PATCH", place.one(namespace, name), key, data=_encode(changes), content_type=JSON_PATCH
        )
        try:
            return self._noted(place, await self._client.ask(request))
        except Invalid as refused:
            if refused.path:
                raise
            raise Conflict(*key) from refused  # a test that did not hold is about no field

    async def delete(
        self,
        kind: str,
        namespace: str,
        name: str,
        *,
        uid: str | None,
        grace_ms: int | None = None,
        version: int | None = None,
    ) -> None:
        only_if = {"uid": uid, "resourceVersion": None if version is None else str(version)}
        options: Wire = {"propagationPolicy": "Background"}
        if any(only_if.values()):
            options["preconditions"] = {name: said for name, said in only_if.items() if said}
        if grace_ms is not None:
            options["gracePeriodSeconds"] = -(-grace_ms // SECOND)
        path = place_of(kind).one(namespace, name)
        await self._client.write("DELETE", path, options, key=(kind, namespace, name))

    async def write_all(self, writes: Sequence[Write]) -> Answers:
        by_object: dict[Key, list[int]] = {}
        for number, write in enumerate(writes):
            by_object.setdefault(written_object(write), []).append(number)
        answers: list[Answer] = [None] * len(writes)

        async def one_after_another(numbers: list[int]) -> None:
            for number in numbers:
                try:
                    answers[number] = await perform(self, writes[number])
                except StoreError as error:
                    answers[number] = error

        await asyncio.gather(*map(one_after_another, by_object.values()))
        return answers

    def _noted(self, place: Place, body: bytes) -> Wire:
        obj = _decode(body)
        metadata = part(obj, "metadata")
        metadata.pop("managedFields", None)
        self._version = max(self._version, version_at(metadata))
        obj["apiVersion"], obj["kind"] = place.api_version, place.kind
        return from_series(obj) if place.kind == "Event" else obj


def _lane(kind: str) -> Lane:
    return Lane.VITAL if kind in _VITAL else Lane.BULK


def _applied(namespace: str, name: str, budget: bytes) -> ApiRequest:
    """Made, or changed to this."""
    return ApiRequest(
        "PATCH",
        f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets/{name}",
        ("PodDisruptionBudget", namespace, name),
        {"fieldManager": "leasehold", "force": "true"},
        budget,
        APPLY,
    )


def _place(obj: Wire) -> Place:
    return place_of(text_at(obj, "kind"))


def _name_of(obj: Wire) -> tuple[str, str]:
    metadata = part(obj, "metadata")
    return text_at(metadata, "namespace"), text_at(metadata, "name")


def _bounded(data: bytes, key: Key) -> bytes:
    if len(data) > OBJECT_BYTES_MAX:
        raise Invalid([("", f"{len(data)} bytes; at most {OBJECT_BYTES_MAX}")], *key)
    return data


def _has_unstamped(status: Wire) -> bool:
    return any(
        isinstance(each, dict) and "lastTransitionTime" not in each
        for each in list_at(status, "conditions")
    )
