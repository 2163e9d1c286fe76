"""One replica of the controller on a Kubernetes cluster: contends for the tenure, and decides while
it leads.

Run by `leasehold controller`. Nothing is decided here: this module creates a plane over the
cluster's store, and a keeper that starts and stops the plane.
"""

import hashlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial

import msgspec
import structlog

from leasehold.adapters.asyncio_runtime import AsyncioClock, AsyncioTasks
from leasehold.adapters.kubernetes.client import MERGE_PATCH, ApiRequest, Client
from leasehold.adapters.kubernetes.install.documents import HOLDER
from leasehold.adapters.kubernetes.places import place_of
from leasehold.adapters.kubernetes.secrets import kept_secret
from leasehold.adapters.kubernetes.store import KubernetesStore
from leasehold.adapters.objects.admission import Admission
from leasehold.app.archive_place import archive_at
from leasehold.app.notifications import notifications_of
from leasehold.app.tenure_thread import TenureThread
from leasehold.control.turn import Turn
from leasehold.core.ledger.head import UnknownFormat
from leasehold.core.objects.run import grace_problems
from leasehold.core.objects.tenure import NAMESPACE, Holder
from leasehold.core.units import SECOND, Millis
from leasehold.ports.runtime import Task
from leasehold.ports.store import Store, StoreError
from leasehold.ports.tenure import Tenure
from leasehold.shell.config.config import Config
from leasehold.shell.leadership.keeper import STOPPED
from leasehold.shell.leadership.standby import Standby
from leasehold.shell.leadership.time_limit import answered_within
from leasehold.shell.ledger.commit import SHARD, sealed_epoch
from leasehold.shell.loop.settings import PlaneSettings
from leasehold.shell.observe.metrics import IDLE
from leasehold.shell.plane import Answering, Plane

GATHER = 10
LOTTERY = "leasehold-lottery"  # the Secret from which the nonces of lotteries are derived
KEY_BYTES = 32
STOP_PATIENCE: Millis = 2 * SECOND  # how long to wait for shutdown duties before tenure is released

_log = structlog.get_logger("leasehold")


class Replica:
    """One replica of the controller; `run` returns after `stop`."""

    def __init__(
        self,
        client: Client,
        clock: AsyncioClock,
        tasks: AsyncioTasks,
        *,
        name: str,
        config: Config,
        connect: Callable[[], Client],
        pod: str = "",
    ) -> None:
        """`connect` creates another client, for the thread that keeps the tenure. `pod` is the name
        of our own pod, in leasehold's namespace; "" if we do not run in one. Raises `BucketTrouble`
        if the archive's bucket cannot be used."""
        self._archive, self._bucket = archive_at(config.policy.archive)
        self._pod = pod
        self._client = client
        self._clock = clock
        self._tasks = tasks
        self._config = config
        self.store = KubernetesStore(client, clock)
        # Planners are told what the API server's own rules cannot express.
        self._admission = Admission(also=lambda run: grace_problems(run, config.policy.grace_max))
        self._notifications = notifications_of(config, clock, tasks, count=self._note_notification)
        # None before the first tenure: only its holder may make the key
        self._plane: Plane | None = None
        self._listeners: list[Callable[[Turn], None]] = [self._notifications.after_turn]
        self._beginning: Task | None = None
        self._begin_duties: Callable[[], Awaitable[None]] = _nothing
        self._end_duties: Callable[[], Awaitable[None]] = _nothing
        self._standby = Standby(self.store, clock, tasks)
        self._keeper = TenureThread(
            partial(_connected, connect),
            clock,
            tasks,
            key=SHARD,
            holder=Holder(name=name, nonce=secrets.token_hex(4)),
            office=self,
            epoch=self._sealed_epoch,
            margins=config.tenure,
            about=self._about,
        )

    async def run(self) -> None:
        # An earlier start in the same pod may have died as holder.
        await self._mark_pod(is_holder=False)
        self._standby.begin()
        await self._keeper.run()
        self._standby.end()

    def stop(self) -> None:
        """Stop cleanly: release the tenure at once, so that another replica can lead."""
        self._tasks.spawn("stopping", self._stop())

    def while_leading(
        self, begin: Callable[[], Awaitable[None]], end: Callable[[], Awaitable[None]]
    ) -> None:
        """Set what to do after this replica has become the leader (`begin`), and before it releases
        the tenure (`end`)."""
        self._begin_duties, self._end_duties = begin, end

    async def _stop(self) -> None:
        if self._keeper.tenure is not None:
            # first, so that we do not undo what the next leader sets up
            with suppress(StoreError):
                await answered_within(self._clock, self._tasks, STOP_PATIENCE, self._end_duties)
        self._keeper.stop()

    def listen(self, hear: Callable[[Turn], None]) -> None:
        """Call `hear` after every turn of this replica. Call this method before `run`."""
        assert self._plane is None, "nobody decides before it runs"
        self._listeners.append(hear)

    @property
    def plane(self) -> Plane | None:
        """The plane; None until this replica leads for the first time."""
        return self._plane

    def metrics(self) -> bytes:
        return IDLE if self._plane is None else self._plane.metrics.text()

    def troubles(self) -> Mapping[str, str]:
        """Return why this replica is not ready, by part; "" for a part that is.

        A leader is ready while it takes decisions. A standby is ready while it knows which replica
        leads and has read everything that the leader committed.
        """
        if self._keeper.trouble:
            return {"ledger": self._keeper.trouble}
        if self._keeper.tenure is None:
            reading = "" if self._standby.is_in_step else "the replica is still reading the ledger"
            return {
                "tenure": self._keeper.vacancy,
                "ledger": self._standby.trouble or reading,
            }
        if self._keeper.is_unsure:
            return {
                "tenure": (
                    "the store does not answer renewals of the tenure, so no new "
                    "decisions are taken"
                )
            }
        if self._plane is None:
            return {"controller": "leasehold is still recovering the ledger"}
        recovering = (
            "" if self._plane.world is not None else "leasehold is still recovering the ledger"
        )
        return {"controller": self._plane.controller.trouble or recovering}

    # Called by the keeper.

    def gained(self, tenure: Tenure) -> None:
        _log.info("tenure gained", epoch=tenure.epoch, holder=tenure.holder.identity)
        self._beginning = self._tasks.spawn("term", self._begin(tenure))

    def unsure(self) -> None:
        _log.warning("tenure is not renewed")
        if self._plane is not None:
            self._plane.unsure()

    def sure(self) -> None:
        _log.info("tenure is renewed again")
        if self._plane is not None:
            self._plane.sure()

    def lost(self, why: str) -> None:
        if self._beginning is not None:
            self._beginning.cancel()
        if self._plane is not None:
            self._plane.lost(why)
        # logged even if tenure was lost before the plane existed
        say = _log.info if why == STOPPED else _log.warning
        say("tenure lost", message=why)
        self._tasks.spawn("holder's label", self._mark_pod(is_holder=False))

    async def _begin(self, tenure: Tenure) -> None:
        await self._mark_pod(is_holder=True)
        if self._plane is None:
            key = await kept_secret(self._client, NAMESPACE, LOTTERY, size=KEY_BYTES)
            self._plane = self._made_plane(key)
        self._plane.gained(tenure)
        await self._begin_duties()

    def _made_plane(self, key: bytes) -> Plane:
        policy = self._config.policy
        plane = Plane(
            self.store,
            self._clock,
            self._tasks,
            PlaneSettings(
                policy=policy,
                lottery_key=key,
                labels=self._config.labels,
                is_shared=True,
                gather=GATHER,
                rehearse=self.store.rehearse,
            ),
            archive=self._archive,
            mirror=self._bucket,
            standby=self._standby,
            answering=Answering(
                judge=lambda run: self._admission(None, run),
                hide_tenants=self._config.asking.hide_tenants,
                # All replicas have the key, so pseudonyms survive a change of leader.
                pseudonym_key=hashlib.sha256(b"pseudonyms\n" + key).digest(),
            ),
            sweeps_events=False,
        )
        for name, work in self._notifications.tasks():
            plane.keep_up(name, work)
        plane.on_deposed(self._keeper.give_up)
        for each in self._listeners:
            plane.listen(each)
        plane.start()
        return plane

    def _note_notification(self, outcome: str) -> None:
        if self._plane is not None:
            self._plane.metrics.note_notification(outcome)

    async def _mark_pod(self, *, is_holder: bool) -> None:
        """Label our pod as the leader's, or remove the label. On a cluster, queries are routed to
        the labelled pod."""
        if not self._pod:
            return
        change = {"metadata": {"labels": {HOLDER: "true" if is_holder else None}}}
        path = place_of("Pod").one(NAMESPACE, self._pod)
        request = ApiRequest(
            "PATCH", path, data=msgspec.json.encode(change), content_type=MERGE_PATCH
        )
        try:
            await self._client.ask(request)
        except StoreError as error:
            _log.warning("the label of the leader's pod cannot be set", message=str(error))

    async def _sealed_epoch(self, store: Store, clock: AsyncioClock, tasks: AsyncioTasks) -> int:
        """Return the epoch in the ledger's head. The thread that keeps the tenure calls this."""
        try:
            # Retried until answered, but a stop request must still get through.
            return await answered_within(
                clock, tasks, self._config.tenure.hold, lambda: sealed_epoch(store, clock)
            )
        except UnknownFormat as unknown:
            if not self._keeper.trouble:
                _log.error("the replica cannot decide", message=str(unknown))
            raise

    def _about(self) -> str:
        """Return the key of the Run that is being decided on. Another thread calls this, so it only
        reads."""
        return "" if self._plane is None else self._plane.controller.about


@asynccontextmanager
async def _connected(
    connect: Callable[[], Client], clock: AsyncioClock, _: AsyncioTasks
) -> AsyncIterator[Store]:
    client = connect()
    try:
        yield KubernetesStore(client, clock)
    finally:
        await client.close()


async def _nothing() -> None:
    return
