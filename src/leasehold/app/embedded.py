"""The embedded control plane: creates and connects store, controller, node agent and server.

Run by `leasehold up`. Nothing is decided here: every part is created, passed to the others,
started, and stopped in the opposite order.
"""

import hashlib
import secrets
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import structlog

from leasehold.adapters.agent.agent import Agent
from leasehold.adapters.agent.limits import EventNote, Limits
from leasehold.adapters.agent.requests import LocalNode
from leasehold.adapters.agent.users import Users
from leasehold.adapters.asyncio_runtime import AsyncioClock, AsyncioTasks
from leasehold.adapters.sqlite.errors import BadStore
from leasehold.adapters.sqlite.group import GroupStore
from leasehold.app.admission import admission_of
from leasehold.app.archive_place import folder_at
from leasehold.app.backend import EmbeddedBackend
from leasehold.app.notifications import notifications_of
from leasehold.app.server import EmbeddedServer
from leasehold.core.names import LEASES_CLOSED, Wire
from leasehold.core.objects.tenure import Holder
from leasehold.core.objects.wire import part, text_at
from leasehold.core.units import Millis
from leasehold.ports.store import AlreadyExists, NotFound, Store
from leasehold.ports.tenure import Tenure
from leasehold.shell.config.config import Config
from leasehold.shell.config.folder import DataFolder
from leasehold.shell.leadership.keeper import STOPPED
from leasehold.shell.leadership.tenure import StoreTenures, take_alone
from leasehold.shell.ledger.commit import SHARD, sealed_epoch
from leasehold.shell.loop.settings import PlaneSettings
from leasehold.shell.observe.events import Occurrence
from leasehold.shell.observe.health import HealthWatch
from leasehold.shell.plane import Answering, Plane

GATHER: Millis = 10
LOOK_MS: Millis = 50
START_PATIENCE: Millis = 5_000  # how long the store may refuse what a start must write
LAST_LOOKS = 60
NAMESPACES = ("default", "leasehold-system")

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class UpSettings:
    """What `leasehold up` has to run: the data folder, the configuration, the nodes and the
    address."""

    folder: DataFolder
    config: Config
    nodes: Sequence[LocalNode]
    host: str
    port: int
    work: Path

    @property
    def archive(self) -> Path:
        named = self.config.policy.archive
        return folder_at(named) if named else self.folder.archive


class Embedded:
    """All parts of an embedded control plane, from `start` to `stop`."""

    def __init__(self, settings: UpSettings, clock: AsyncioClock, tasks: AsyncioTasks) -> None:
        self._settings = settings
        self._clock = clock
        self._tasks = tasks
        folder, config = settings.folder, settings.config
        self._admission = admission_of(config.policy)
        # The controller would do the same, an instant later and with another write.
        finalizers = {"Run": LEASES_CLOSED}
        self.store = GroupStore(folder.store, tasks, clock, self._admission, finalizers=finalizers)
        self.plane = Plane(
            self.store,
            clock,
            tasks,
            self._terms(),
            archive=settings.archive,
            answering=Answering(
                judge=self._judge_new,
                hide_tenants=config.asking.hide_tenants,
                # pseudonyms stay the same after restarts, and nobody can test names
                pseudonym_key=hashlib.sha256(b"pseudonyms\n" + folder.key()).digest(),
            ),
        )
        self._notifications = notifications_of(
            config, clock, tasks, count=self.plane.metrics.note_notification
        )
        self.plane.listen(self._notifications.after_turn)
        self.users = Users(
            folder.agent,
            work=settings.work,
            restored=folder.restored_users,
            configured=dict(config.embedding.users),
        )
        self.agent = Agent(
            self.store,
            clock,
            tasks,
            folder=folder.agent,
            work=settings.work,
            nodes=settings.nodes,
            labels=config.labels,
            users=self.users,
            note=self._note,
            limits=Limits(pids_max=config.embedding.pids_max),
            containment=self.plane.containment,
        )
        backing = EmbeddedBackend(
            self.plane, self.agent, clock, hides_tenants=config.asking.hide_tenants
        )
        self.reception = EmbeddedServer(
            folder, self.store, self.plane, clock, backing, health=self._health
        )
        self._health_watch = HealthWatch(
            clock, self._troubles, on_trouble=self._on_trouble, on_relief=self._on_relief
        )
        self._tenures = StoreTenures(self.store, clock, tasks, is_alone=True)
        self._tenure: Tenure | None = None
        self._is_begun = False  # the parts that may have troubles are running

    def _terms(self) -> PlaneSettings:
        """Return the settings of the plane. No other process can lead, because only one can open
        the store."""
        folder, config = self._settings.folder, self._settings.config
        self._is_key_new = folder.lacks_key
        return PlaneSettings(
            policy=config.policy,
            lottery_key=folder.key(),
            labels=config.labels,
            gather=GATHER,
        )

    async def start(self) -> None:
        """Start everything, and return when all is ready. While the disk is full, this waits."""
        self.plane.keep_up("health", self._health_watch.run)
        settings, folder = self._settings, self._settings.folder
        if self._is_key_new:
            self._alert(
                f"{folder.lottery_key} was missing and was created again; everything announced "
                "with the old key is announced again before any draw"
            )
        for name in NAMESPACES:
            await _ensure_namespace(self.store, name)
        self._is_begun = True
        await self.agent.prepare()
        for words in self.users.estranged():
            _log.warning("files of another user", message=words)
        await self._take_tenure()
        self._tasks.spawn("agent", self.agent.run())
        self.plane.start()
        for name, work in self._notifications.tasks():
            self.plane.keep_up(name, work)
        while self.plane.world is None:
            await self._clock.sleep(1)
        await self.reception.start(settings.host, settings.port)

    async def cannot_start(self) -> None:
        """Watch the store during the start. Raise `BadStore` once it has refused all writes for
        `START_PATIENCE`."""
        refused_for = 0
        while refused_for < START_PATIENCE:
            await self._clock.sleep(LOOK_MS)
            refused_for = refused_for + LOOK_MS if self.store.trouble else 0
        remedy = "then start leasehold again; running jobs continue in the meantime"
        raise BadStore(self.store.path, self.store.trouble, remedy)

    async def end_jobs(self) -> None:
        """End every job, and wait until the ledger has closed all leases, or for a few seconds."""
        self.plane.controller.start_nothing()
        await self.agent.end_all()
        for _ in range(LAST_LOOKS):
            if self.plane.world is None:
                return
            settled = self.plane.controller.settled
            if settled is not None and not settled.open_by_run:
                return
            await self._clock.sleep(LOOK_MS)

    async def _take_tenure(self) -> None:
        """Acquire the tenure. No other process can have it, because only one can open the store.
        The stored record shows which process leads, and in which epoch."""
        name = socket.gethostname()
        self._tenure = await take_alone(
            self._tenures,
            self._clock,
            SHARD,
            Holder(name=name, nonce=secrets.token_hex(4)),
            await sealed_epoch(self.store, self._clock),
        )
        self.plane.gained(self._tenure)

    async def stop(self) -> None:
        """Stop all parts and release the tenure. Jobs continue, and the next start adopts them."""
        await self.reception.stop()
        await self.agent.stop()
        if self._tenure is not None:
            self.plane.lost(STOPPED)
            await self._tenures.release(self._tenure)

    def close(self) -> None:
        self.store.close()

    def ask_to_compact(self) -> None:
        self.plane.compactor.request()
        self.plane.controller.wake()

    def _judge_new(self, run: Wire) -> list[tuple[str, str]]:
        """Return why submitting this Run would be refused; [] if it would be accepted."""
        problems = self._admission(None, run)
        namespace = text_at(part(run, "metadata"), "namespace")
        if not problems:
            try:
                self.store.stored("Namespace", "", namespace)
            except NotFound:
                problems = [("metadata.namespace", f"{namespace!r}: there is no such namespace")]
        return problems

    def _health(self) -> Mapping[str, str]:
        found = dict(self._troubles())
        if not found["controller"] and self.plane.world is None:
            found["controller"] = "leasehold is still recovering the ledger"
        return found

    def _troubles(self) -> Mapping[str, str]:
        """Return, for store, controller and agent, what is wrong with the part; "" if nothing is. A
        controller that is still recovering the ledger has no trouble, because that ends by
        itself."""
        return {
            "store": self.store.trouble,
            "controller": self.plane.controller.trouble if self._is_begun else "",
            "agent": self.agent.trouble if self._is_begun else "",
        }

    def _on_trouble(self, part: str, why: str) -> None:
        self._alert(f"{part}: {why}")

    def _on_relief(self, part: str) -> None:
        _log.warning("the problem is solved", part=part)

    def _alert(self, words: str) -> None:
        self.plane.alerted(self._clock.now(), words)

    def _note(self, note: EventNote) -> None:
        self.plane.teller.tell(
            Occurrence(
                kind=note.kind,
                namespace=note.namespace,
                name=note.name,
                uid=note.uid,
                reason=note.reason,
                message=note.message,
                type=note.type,
            )
        )


async def _ensure_namespace(store: Store, name: str) -> None:
    with suppress(AlreadyExists):
        await store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
