"""A story's store on a real Kubernetes API server, while the story runs on virtual time.

Used by `leasehold sim scenario --store kube`. The client runs on an event loop in a thread of its
own. Every call blocks until its answer, so it takes no virtual time, as with the other stores. A
write returns after every open watch of its kind has seen it. So when no task is ready, nothing is
in transit, and the kernel may advance time.

Three things come from the story instead of the server: the times of creation and deletion, grace
periods below a second, and uids. Uids are numbered in the order of creation, so that lotteries are
reproducible.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import TypeVar

import msgspec

from leasehold.adapters.kubeconfig.read import KubeContext
from leasehold.adapters.kubernetes.client import JSON_PATCH, ApiRequest, Client
from leasehold.adapters.kubernetes.places import place_of
from leasehold.adapters.kubernetes.pods import PRIORITY
from leasehold.adapters.kubernetes.store import KubernetesStore
from leasehold.adapters.kubernetes.watching import KubernetesWatch
from leasehold.adapters.objects.rules import problems_of
from leasehold.adapters.objects.writes import Admit
from leasehold.core.names import Wire
from leasehold.core.objects.manifests import USER_KINDS
from leasehold.core.objects.wire import list_at, part, text_at, version_at, whole_at
from leasehold.core.units import SECOND, Instant, Millis, format_instant
from leasehold.ports.runtime import Clock, Tasks
from leasehold.ports.store import (
    AlreadyExists,
    Answers,
    Invalid,
    Listing,
    NotFound,
    StoreError,
    WatchEvent,
    WatchExpired,
    Write,
    perform,
)

T = TypeVar("T")
Key = tuple[str, str, str]

DEADLINE_S = 60.0  # time limit of any answer; a slower server is not usable
LOOK_S = 0.0005  # polling interval for the progress of watches
NAMESPACES = "/api/v1/namespaces"
PRIORITIES = "/apis/scheduling.k8s.io/v1/priorityclasses"
EMPTY_KINDS = ("LedgerHead", "Run", "Budget", "Lease", "Node")
# Kinds that no story has; the cluster's own objects are ignored
ABSENT_KINDS = ("ConfigMap", "Secret")
# Objects shared by a Run's pods; without a garbage collector they would outlive their Run.
COMPANIONS = (
    "/api/v1/namespaces/{}/services/{}",
    "/apis/policy/v1/namespaces/{}/poddisruptionbudgets/{}",
)
_encode = msgspec.json.Encoder().encode


class BadCluster(Exception):  # noqa: N818 - named for the condition
    """The cluster cannot be used to play a story."""

    def __init__(self, server: str, why: str, remedy: str) -> None:
        super().__init__(f"{server}: {why}; {remedy}")


class ClusterStore:
    """`ports.store.Store` on a cluster; its calls block and never suspend. `close` removes what was
    created."""

    def __init__(
        self, load: Callable[[], KubeContext], tasks: Tasks, clock: Clock, admit: Admit
    ) -> None:
        """`admit`: the checks that `leasehold lint` and `kubectl runs submit` make before sending,
        including those that CEL cannot express; after them, the server makes its own. Raise
        `BadCluster` if the cluster has objects that could be confused with those of the story."""
        self._tasks = tasks
        self._clock = clock
        self._admit = admit
        self._client = Client(load)
        self._inner = KubernetesStore(self._client, _ServersClock(clock))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._watches: list[ClusterWatch] = []
        self._made: dict[Key, None] = {}
        self._namespaces: set[str] = set()
        self._story_uids: dict[str, str] = {}  # server uid -> story uid
        self._server_uids: dict[str, str] = {}  # story uid -> server uid
        self._created: dict[str, Instant] = {}
        self._asked_to_go: dict[str, tuple[Instant, Millis | None]] = {}
        try:
            self._prepare()
        except BaseException:
            self._stop()
            raise

    async def get(self, kind: str, namespace: str, name: str) -> Wire:
        return self.told(self.wait_for(self._inner.get(kind, namespace, name)))

    async def list(self, kind: str) -> Listing:
        if kind in ABSENT_KINDS:
            return Listing([], 0)
        listing = self.wait_for(self._inner.list(kind))
        return Listing([self.told(each) for each in listing.items], listing.version)

    async def scan(self, kind: str, see: Callable[[bytes], None]) -> int:
        listing = await self.list(kind)
        for each in listing.items:
            see(_encode(each))
        return listing.version

    def watch(self, kind: str, version: int) -> "ClusterWatch":
        self._watches = [each for each in self._watches if not each.is_closed]
        made = ClusterWatch(self, self._inner.watch(kind, version), kind, self._tasks)
        self._watches.append(made)
        return made

    async def create(self, obj: Wire) -> Wire:
        metadata = part(obj, "metadata")
        key = (text_at(obj, "kind"), text_at(metadata, "namespace"), text_at(metadata, "name"))
        self._check(key, None, obj)
        self._have_namespace(key[1])
        stored = self.wait_for(self._inner.create(_with_images(obj) if key[0] == "Pod" else obj))
        self._made[key] = None
        uid = text_at(part(stored, "metadata"), "uid")
        name = f"uid-{len(self._created) + 1:06d}"
        self._story_uids[uid], self._server_uids[name] = name, uid
        self._created[uid] = self._clock.now()
        return self._seen(key, stored)

    async def update(self, obj: Wire) -> Wire:
        metadata = dict(part(obj, "metadata"))
        key = (text_at(obj, "kind"), text_at(metadata, "namespace"), text_at(metadata, "name"))
        self._check(key, await self.get(*key), obj)
        metadata.pop("deletionGraceMs", None)
        if "uid" in metadata:
            metadata["uid"] = self._servers(text_at(metadata, "uid"))
        stored = self.wait_for(self._inner.update({**obj, "metadata": metadata}))
        return self._seen(key, stored)

    async def patch_status(
        self, kind: str, namespace: str, name: str, status: Wire, *, version: int | None
    ) -> Wire:
        patched = self._inner.patch_status(kind, namespace, name, status, version=version)
        return self._seen((kind, namespace, name), self.wait_for(patched))

    async def bind(
        self, namespace: str, name: str, node: str, *, uid: str, version: int | None = None
    ) -> None:
        real = self._servers(uid)
        self.wait_for(self._inner.bind(namespace, name, node, uid=real, version=version))
        self._look(("Pod", namespace, name), real)

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
        real = None if uid is None else self._servers(uid)
        stored = self.wait_for(
            self._inner.set_finalizers(kind, namespace, name, finalizers, known=known, uid=real)
        )
        self._look((kind, namespace, name), text_at(part(stored, "metadata"), "uid"))
        return self.told(stored)

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
        there = self.wait_for(self._inner.get(kind, namespace, name))
        found = text_at(part(there, "metadata"), "uid")
        real = None if uid is None else self._servers(uid)
        asked, self._asked_to_go[found] = (
            self._asked_to_go.get(found),
            (self._clock.now(), grace_ms),
        )
        try:
            self.wait_for(
                self._inner.delete(
                    kind, namespace, name, uid=real, grace_ms=grace_ms, version=version
                )
            )
        except StoreError:
            self._asked_to_go.pop(found)
            if asked is not None:
                self._asked_to_go[found] = asked
            raise
        self._look((kind, namespace, name), found)

    async def write_all(self, writes: Sequence[Write]) -> Answers:
        """Do the writes one after another, so that a story has the same history each time."""
        answers: Answers = []
        for write in writes:
            try:
                answers.append(await perform(self, write))
            except StoreError as error:
                answers.append(error)
        return answers

    def close(self) -> None:
        """Delete the created objects. Namespaces stay, because only a controller could complete
        their deletion."""
        try:
            self.wait_for(self._wipe())
        finally:
            self._stop()

    def told(self, obj: Wire) -> Wire:
        """Return the object with the story's uid and times instead of the server's."""
        metadata = part(obj, "metadata")
        uid = text_at(metadata, "uid")
        if uid not in self._story_uids:
            return obj
        metadata = {
            **metadata,
            "uid": self._story_uids[uid],
            "creationTimestamp": format_instant(self._created[uid]),
        }
        if "deletionTimestamp" in metadata:
            at, asked = self._asked_to_go[uid]
            whole = SECOND * (whole_at(metadata, "deletionGracePeriodSeconds") or 0)
            grace = asked if asked is not None and 0 <= whole - asked < SECOND else whole
            metadata["deletionTimestamp"] = format_instant(at + grace)
            metadata["deletionGraceMs"] = grace
        return {**obj, "metadata": metadata}

    def wait_for(self, coroutine: Coroutine[object, object, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(DEADLINE_S)

    def spawn(self, coroutine: Coroutine[object, object, None]) -> Future[None]:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def _prepare(self) -> None:
        for kind in EMPTY_KINDS:
            try:
                listing = self.wait_for(self._inner.list(kind))
            except NotFound:
                why, remedy = (
                    f"the API server has no {kind} kind",
                    "apply the output of `leasehold crds`",
                )
                raise BadCluster(self._server(), why, remedy) from None
            except StoreError as error:
                raise BadCluster(
                    self._server(), str(error), "check that it runs and that you have access"
                ) from None
            if listing.items:
                name = text_at(part(listing.items[0], "metadata"), "name")
                why, remedy = (
                    f"already has a {kind} ({name})",
                    "name a cluster without leasehold objects",
                )
                raise BadCluster(self._server(), why, remedy)
        made = {"metadata": {"name": PRIORITY}, "value": 1, "preemptionPolicy": "Never"}
        with suppress(AlreadyExists):
            self.wait_for(self._client.write("POST", PRIORITIES, made))

    def _server(self) -> str:
        return self.wait_for(self._client.context()).server

    def _have_namespace(self, name: str) -> None:
        if not name or name in self._namespaces:
            return
        with suppress(AlreadyExists):
            self.wait_for(self._client.write("POST", NAMESPACES, {"metadata": {"name": name}}))
        self._namespaces.add(name)

    def _check(self, key: Key, old: Wire | None, new: Wire) -> None:
        if key[0] in USER_KINDS:
            problems = problems_of(new) or self._admit(old, new, self._stored)
            if problems:
                raise Invalid(problems, *key)

    def _stored(self, kind: str) -> Sequence[bytes]:
        return [_encode(each) for each in self.wait_for(self._inner.list(kind)).items]

    def _servers(self, uid: str) -> str:
        return self._server_uids.get(uid, uid)

    def _seen(self, key: Key, stored: Wire) -> Wire:
        """Wait until every watch of the object's kind has seen the stored version, and return the
        object."""
        metadata = part(stored, "metadata")
        if "deletionTimestamp" in metadata and not metadata.get("finalizers"):
            self._look(key, text_at(metadata, "uid"))  # this write may have removed it
        else:
            self._catch_up(key[0], lambda watch: watch.version >= version_at(metadata))
        return self.told(stored)

    def _look(self, key: Key, uid: str) -> None:
        """Wait until every watch of the kind has seen a write whose answer does not contain the
        object. The object is read to find its version."""
        if not any(watch.kind == key[0] and not watch.is_closed for watch in self._watches):
            return
        try:
            metadata = part(self.wait_for(self._inner.get(*key)), "metadata")
        except NotFound:
            metadata = {}
        if metadata.get("uid") == uid:
            self._catch_up(key[0], lambda watch: watch.version >= version_at(metadata))
        else:
            self._catch_up(key[0], lambda watch: uid in watch.gone)

    def _catch_up(self, kind: str, is_there: Callable[["ClusterWatch"], bool]) -> None:
        for watch in self._watches:
            if watch.kind == kind and not watch.is_closed:
                self.wait_for(watch.until(is_there))
                watch.wake()

    async def _wipe(self) -> None:
        companies = {(each[1], each[2]) for each in self._inner.companies}
        await asyncio.gather(
            *(self._wiped(place_of(kind).one(*rest)) for kind, *rest in self._made),
            *(self._wiped(each.format(*key)) for key in companies for each in COMPANIONS),
        )

    async def _wiped(self, path: str) -> None:
        with suppress(NotFound):
            await self._client.write("DELETE", path, {"gracePeriodSeconds": 0})
            free: list[Wire] = [{"op": "add", "path": "/metadata/finalizers", "value": []}]
            request = ApiRequest("PATCH", path, data=_encode(free), content_type=JSON_PATCH)
            with suppress(StoreError):
                await self._client.ask(request)

    def _stop(self) -> None:
        for watch in self._watches:
            watch.close()
        self.wait_for(self._let_go())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(DEADLINE_S)
        self._loop.close()

    async def _let_go(self) -> None:
        reading = asyncio.all_tasks() - {asyncio.current_task()}
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)
        await self._client.close()


class ClusterWatch:
    """`ports.store.Watch`: events are read on the client's thread, and delivered on the thread of
    the simulator's kernel (`sim/kernel.py`)."""

    def __init__(
        self, store: ClusterStore, inner: KubernetesWatch, kind: str, tasks: Tasks
    ) -> None:
        self.kind = kind
        self.is_closed = False
        self.gone: set[str] = set()  # uids of objects seen as deleted
        self._store = store
        self._inner = inner
        self._events: deque[WatchEvent] = deque()
        self._is_lost = False
        self._signal = tasks.signal()
        self._reading = store.spawn(self._read())

    @property
    def version(self) -> int:
        return self._inner.version

    async def next(self) -> WatchEvent:
        while not self._events:
            if self.is_closed or self._is_lost:
                raise WatchExpired(self.kind)
            await self._signal.wait(None)
        event = self._events.popleft()
        return WatchEvent(event.type, event.version, lambda: self._store.told(event.object))

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self._reading.cancel()

    def wake(self) -> None:
        if self._events or self._is_lost:
            self._signal.set()

    async def until(self, is_there: Callable[["ClusterWatch"], bool]) -> None:
        while not (is_there(self) or self._is_lost or self.is_closed):
            await asyncio.sleep(LOOK_S)

    async def _read(self) -> None:
        try:
            while True:
                event = await self._inner.next()
                if event.type == "DELETED":
                    self.gone.add(text_at(part(event.object, "metadata"), "uid"))
                self._events.append(event)
        except WatchExpired:
            self._is_lost = True
        finally:
            self._inner.close()


def _with_images(pod: Wire) -> Wire:
    """Return the pod with an image for each container, because the server requires one."""
    spec = part(pod, "spec")
    written = (each for each in list_at(spec, "containers") if isinstance(each, dict))
    containers = [{"image": "none", **each} for each in written]
    return {**pod, "spec": {**spec, "containers": containers}}


class _ServersClock:
    """Returns the story's time, but pauses in real time."""

    def __init__(self, story: Clock) -> None:
        self._story = story

    def now(self) -> int:
        return self._story.now()

    def monotonic(self) -> int:
        return self._story.monotonic()

    async def sleep(self, ms: int) -> None:
        await asyncio.sleep(ms / SECOND)
