"""`ports.store.Store` on a Kubernetes API server.

Each write is one request, and each failure is one of the port's errors. The writes of one
`write_all` run in parallel, limited by the client's connections; writes to one object keep their
order. Lists and watches of Pods and Nodes return only the fields that we read (`projection`).
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
PAGE = 500  # page size of a listing
_VITAL = frozenset({"LedgerHead", tenure.KIND})
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, object]).decode


class _Page(msgspec.Struct):
    metadata: dict[str, object] = {}
    items: list[msgspec.Raw] | None = None


_decode_page = msgspec.json.Decoder(_Page).decode


class _SharedState:
    """What is known of the Service and the PodDisruptionBudget that all pods of a Run share. The
    first pod of the Run creates them."""

    def __init__(self) -> None:
        self.meeting = asyncio.Lock()
        self.budget: bytes | None = None  # the PodDisruptionBudget as last written


class KubernetesStore:
    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._version = 0  # highest version seen from the server
        self._companies: dict[Key, _SharedState] = {}  # by the Run's Service
        self._alone: dict[tuple[str, str], Wire] = {}  # pods created without their shared objects

    @property
    def companies(self) -> Sequence[Key]:
        """The Services of Runs that this process has created or found. Each has a
        PodDisruptionBudget of the same name."""
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
            raise Unavailable(kind) from None  # took too long: the caller starts again

    async def moment(self, kinds: Sequence[str], see: Callable[[str, bytes], None]) -> int:
        """Pass all objects of several kinds to `see`, all as of the same version, and return that
        version. Raise `WatchExpired` if reading takes longer than the server keeps the version."""
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
        """Read all objects page by page, all as of the same version: `exactly`, or if that is 0 the
        current one. Return the version.

        The server may drop the version before the last page is read. Then call `forget`, which must
        undo what `see` has done, and start again; raise `WatchExpired` if `forget` is None."""
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
        """Create the pod and, at the same time, the objects that the pods of its Run share. The
        store does not bind the pod before these exist."""
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
        """Return each pod as the server would create it, or the error with which the server would
        refuse it. Nothing is created. A gang that can never fit its namespace's quotas is refused
        too, even if each of its pods alone would fit."""
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
            # A raised quota must count at once, so read quotas again before refusing.
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
        """Return the namespace's quotas; none if they cannot be read, because the server enforces
        them anyway.

        Without `is_fresh`, they come from the server's cache: a consistent read may wait up to 100
        ms for etcd, and would delay every Run. `is_fresh` is for the read before a refusal."""
        path = f"/api/v1/namespaces/{quote(namespace, safe='')}/resourcequotas"
        query = {} if is_fresh else {"resourceVersion": "0"}
        try:
            listed = list_at(_decode(await self._client.read(path, query)), "items")
        except StoreError:
            return []
        return [each for each in listed if isinstance(each, dict)]

    async def _companions(self, pod: Wire) -> None:
        """Create the objects that the pods of a Run share: the Service by which the pods find each
        other, and the PodDisruptionBudget. The caller must do this before the Run's first pod is
        bound."""
        if not has_mates(pod):
            return
        service, place = service_of(pod), place_of("Service")
        key = key_of(service)
        budget = _encode(disruption_budget_of(pod))
        if len(self._companies) >= COMPANIES_MAX:
            self._companies.clear()  # creating them again is harmless
        company = self._companies.setdefault(key, _SharedState())
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
            # The pod's creator may have died before it created the shared objects.
            await self._companions(obj)
        return await self._sent_whole(place, obj, "PUT", place.one(key[1], key[2]))

    async def _sent_whole(self, place: Place, obj: Wire, method: str, path: str) -> Wire:
        """Send the object. If the server refuses it for a mistake that our other stores check too,
        report that mistake with the same paths as they do."""
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
            status = _decode(_encode(status))  # do not change the caller's status
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
            # Null if there are none: the field is absent then
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
            raise Conflict(*key) from refused  # a failed test names no field

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
    """Return the request that creates the PodDisruptionBudget or updates it."""
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
