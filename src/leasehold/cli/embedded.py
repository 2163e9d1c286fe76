"""The embedded control plane, put together: store, controller, node agent, REST facade.

`leasehold up` runs it. This is the composition root and nothing else: every part is made here,
handed to the others, started, and stopped in the opposite order. What the parts do is theirs.
"""

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import click
import structlog

from leasehold.adapters.agent.agent import Agent
from leasehold.adapters.agent.limits import EventNote, Limits
from leasehold.adapters.agent.logs import NoLog, NoPod
from leasehold.adapters.agent.requests import LocalNode
from leasehold.adapters.agent.users import Users
from leasehold.adapters.asyncio_runtime import AsyncioClock, AsyncioTasks
from leasehold.adapters.containment import About, Containment, kept_up
from leasehold.adapters.http.refusal import Cause, RequestRefused
from leasehold.adapters.http.serve import Server, serve
from leasehold.adapters.http.tls import ensure_certificates
from leasehold.adapters.http.tokens import Tokens
from leasehold.adapters.kubeconfig.written import read_back, write_kubeconfig
from leasehold.adapters.rest.app import make_app
from leasehold.adapters.rest.backend import Backend, LogOptions
from leasehold.adapters.sqlite.errors import BadStore
from leasehold.adapters.sqlite.group import GroupStore
from leasehold.cli.judgement import admission_of
from leasehold.control.edits import uncovered_edit
from leasehold.control.turn import Turn
from leasehold.core.objects.access import Caller, CallerRole
from leasehold.core.objects.edits import check_edit
from leasehold.core.objects.run import check_run
from leasehold.core.objects.wire import LEASES_CLOSED, part, text_at
from leasehold.core.units import Millis
from leasehold.ports.store import AlreadyExists, Expired, NotFound, Store, Wire
from leasehold.shell.archive.compactor import Compactor
from leasehold.shell.archive.reader import Archive
from leasehold.shell.config import Config
from leasehold.shell.drift import DriftWatch
from leasehold.shell.ended_pods import sweep_ended_pods
from leasehold.shell.events import Story, Teller
from leasehold.shell.folder import DataFolder
from leasehold.shell.health import HealthWatch
from leasehold.shell.ledger import SHARD
from leasehold.shell.logs import DecisionLog
from leasehold.shell.loop import Controller
from leasehold.shell.metrics import Metrics
from leasehold.shell.notifications import Notifications, channels_of
from leasehold.shell.query import BadQuestion, Questions

GATHER: Millis = 10
LOOK_MS: Millis = 50
START_PATIENCE: Millis = 5_000  # with a store that refuses what a start must write
LAST_LOOKS = 60
SECRET_BYTES_MIN = 16
ADMIN = "admin"  # the user of the kubeconfig that `up` writes
NAMESPACES = ("default", "leasehold-system")

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Settings:
    folder: DataFolder
    config: Config
    nodes: Sequence[LocalNode]
    host: str
    port: int
    work: Path

    @property
    def archive(self) -> Path:
        named = self.config.policy.archive
        return Path(named) if named else self.folder.archive


class Embedded:
    """Started by `start`, over when `stop` returns."""

    def __init__(self, settings: Settings, clock: AsyncioClock, tasks: AsyncioTasks) -> None:
        self._settings = settings
        self._clock = clock
        self._tasks = tasks
        folder, config = settings.folder, settings.config
        self._admission = admission_of(config.policy)
        # As the controller would, an instant later and with another write.
        finalizers = {"Run": LEASES_CLOSED}
        self.store = GroupStore(folder.store, tasks, clock, self._admission, finalizers=finalizers)
        self.archive = Archive(settings.archive)
        self._teller = Teller(self.store, clock, tasks)
        self._log = DecisionLog()
        self.metrics = Metrics(lambda: self._controller.world, clock)
        self._containment = Containment(self._contain)
        self._notifications = self._made_notifications()
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
            containment=self._containment,
        )
        self.tokens = Tokens(folder.tokens)
        self._compactor = Compactor(
            self.store,
            clock,
            folder=settings.archive,
            keep_closed=config.policy.keep_closed,
            max_objects=config.policy.max_objects,
            note=lambda words: self._observe(clock.now(), words),
        )
        self._drift = DriftWatch(clock, lambda: self._controller.world, self._on_drift)
        self._health_watch = HealthWatch(
            clock, self._troubles, on_trouble=self._on_trouble, on_relief=self._on_relief
        )
        self._server: Server | None = None
        self._is_decided = False  # there is a controller

    async def start(self) -> None:
        """Ready for everything when this returns. As long as the disk is full it does not."""
        self._keep_up("health", self._health_watch.run)
        settings, folder = self._settings, self._settings.folder
        if folder.lacks_key:
            said = (
                f"alert: {folder.lottery_key} was missing and is made anew; what was announced "
                "under the old key is announced again before anything is drawn"
            )
            self._observe(self._clock.now(), said)
        for name in NAMESPACES:
            await _ensure_namespace(self.store, name)
        budgets = await self._learn_budgets()
        self._controller = Controller(
            self.store,
            self._clock,
            self._tasks,
            policy=settings.config.policy,
            lottery_key=folder.key(),
            labels=settings.config.labels,
            epoch=await self._next_epoch(),
            observer=self._observe,
            on_turn=self._after_turn,
            between_turns=self._compactor.step,
            stopwatch=self.metrics,
            containment=self._containment,
            gather=GATHER,
        )
        self._is_decided = True
        await self.agent.prepare()
        for words in self.users.estranged():
            _log.warning("files of another user", message=words)
        self._tasks.spawn("controller", self._controller.run())
        self._tasks.spawn("agent", self.agent.run())
        self._keep_up("events", self._teller.run)
        self._keep_up("budgets", lambda: self._follow_budgets(budgets))
        self._keep_up("ended pods", self._sweep_ended_pods)
        self._keep_up("drift", self._drift.run)
        for name, work in self._notifications.tasks():
            self._keep_up(name, work)
        while self._controller.world is None:
            await self._clock.sleep(1)
        certificates = ensure_certificates(folder.tls, [settings.host])
        self._server = await serve(
            make_app(self._backend()),
            host=settings.host,
            port=settings.port,
            certificates=certificates,
        )
        write_kubeconfig(
            folder.kubeconfig,
            server=self.url,
            ca_pem=certificates.ca_pem,
            token=self._admin_token(),
        )

    def _made_notifications(self) -> Notifications:
        embedding = self._settings.config.embedding
        secret = b""
        if embedding.webhooks and not embedding.notify_secret:
            raise click.ClickException(
                "notify.webhooks are signed: name the file of a secret with notify.secretFile"
            )
        if embedding.notify_secret:
            path = Path(embedding.notify_secret)
            try:
                secret = path.read_bytes().strip()
            except OSError as error:
                raise click.ClickException(f"notify.secretFile {path}: {error.strerror}") from None
            if len(secret) < SECRET_BYTES_MIN:
                raise click.ClickException(
                    f"notify.secretFile {path}: write at least {SECRET_BYTES_MIN} bytes into it, "
                    "such as `openssl rand -hex 32` prints"
                )
        return Notifications(
            channels_of(dict(embedding.webhooks), dict(embedding.commands), secret),
            self._clock,
            self._tasks,
            events=embedding.notify_events,
            count=self.metrics.note_notification,
        )

    def _keep_up(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        task = kept_up(name, work, clock=self._clock, containment=self._containment)
        self._tasks.spawn(name, task)

    async def _sweep_ended_pods(self) -> None:
        await sweep_ended_pods(self.store, self._clock, lambda: self._controller.world)

    async def cannot_start(self) -> None:
        """Raises `BadStore` when the store has refused everything for a while."""
        refused_for = 0
        while refused_for < START_PATIENCE:
            await self._clock.sleep(LOOK_MS)
            refused_for = refused_for + LOOK_MS if self.store.trouble else 0
        remedy = "then start it again; jobs that run go on meanwhile"
        raise BadStore(self.store.path, self.store.trouble, remedy)

    @property
    def url(self) -> str:
        assert self._server is not None, "it is not started"
        host = self._settings.host
        return f"https://{f'[{host}]' if ':' in host else host}:{self._server.port}"

    async def end_jobs(self) -> None:
        """Ends every job, and returns when the ledger knows of it, or after a while."""
        self._controller.start_nothing()
        await self.agent.end_all()
        for _ in range(LAST_LOOKS):
            world = self._controller.world
            if world is None or not world.open_by_run:
                return
            await self._clock.sleep(LOOK_MS)

    async def stop(self) -> None:
        """Jobs go on; the next start adopts them."""
        if self._server is not None:
            await self._server.stop()
        await self.agent.stop()

    def close(self) -> None:
        self.store.close()

    def ask_to_compact(self) -> None:
        self._compactor.request()
        self._controller.wake()

    def _backend(self) -> Backend:
        self._questions = Questions(
            self._controller,
            self._clock,
            archive=self.archive,
            judge=self._judge_new,
            hide_tenants=self._settings.config.embedding.hide_tenants,
            # A pseudonym stays the same over restarts, and nobody can try names out.
            pseudonym_key=hashlib.sha256(b"pseudonyms\n" + self._settings.folder.key()).digest(),
        )
        return Backend(
            store=self.store,
            tokens=self.tokens,
            clock=self._clock,
            query=self._ask,
            logs=self._logs,
            metrics=self._metrics,
            health=self._health,
            judge=self._judge,
            hides_tenants=self._settings.config.embedding.hide_tenants,
        )

    def _logs(self, pod: Wire, options: LogOptions) -> AsyncIterator[bytes]:
        try:
            return self.agent.logs(
                pod,
                follow=options.follow,
                timestamps=options.timestamps,
                tail_lines=options.tail_lines,
                since_ms=options.since_ms,
                limit_bytes=options.limit_bytes,
                previous=options.previous,
            )
        except NoPod as none:
            name = text_at(part(pod, "metadata"), "name")
            raise RequestRefused(404, "NotFound", str(none), kind="pods", name=name) from None
        except NoLog as none:
            raise RequestRefused(400, "BadRequest", str(none)) from None

    async def _ask(
        self, caller: Caller, question: str, params: Mapping[str, str], body: Wire | None
    ) -> Wire:
        try:
            return await self._questions.ask(caller, question, params, body)
        except BadQuestion as bad:
            causes = [Cause("FieldValueInvalid", why, path) for path, why in bad.causes]
            raise RequestRefused(bad.status, bad.reason, bad.message, causes) from None

    def _metrics(self, caller: Caller) -> bytes:
        if self._settings.config.embedding.hide_tenants and not caller.is_trusted:
            said = "metrics name every team, and query.hideTenants is on; ask with an admin's token"
            raise RequestRefused(403, "Forbidden", said)
        return self.metrics.text()

    def _judge_new(self, run: Wire) -> list[tuple[str, str]]:
        """What submitting it would be refused for."""
        problems = self._admission.rehearse(None, run)
        namespace = text_at(part(run, "metadata"), "namespace")
        if not problems:
            try:
                self.store.stored("Namespace", "", namespace)
            except NotFound:
                problems = [("metadata.namespace", f"{namespace!r}: there is no such namespace")]
        return problems

    async def _judge(self, _: Caller, old: Wire | None, new: Wire) -> list[tuple[str, str]]:
        world = self._controller.world
        if world is None or old is None or new.get("kind") != "Run":
            return []
        uid = text_at(part(old, "metadata"), "uid")
        if world.open_by_run.get(uid) and not check_run(new):
            late = check_edit(old, new, is_admitted=True)
            if late:  # its status may not say so yet
                return [(each.path, f"{each.value}: {each.remedy}") for each in late]
        return uncovered_edit(world, uid, new, max(self._clock.now(), world.head.instant))

    def _health(self) -> Mapping[str, str]:
        found = dict(self._troubles())
        if not found["controller"] and self._controller.world is None:
            found["controller"] = "it is recovering the ledger"
        return found

    def _troubles(self) -> Mapping[str, str]:
        """What somebody should look at; that the ledger is read back is no trouble."""
        return {
            "store": self.store.trouble,
            "controller": self._controller.trouble if self._is_decided else "",
            "agent": self.agent.trouble if self._is_decided else "",
        }

    def _on_trouble(self, part: str, why: str) -> None:
        self._observe(self._clock.now(), f"alert: {part}: {why}")

    def _on_relief(self, part: str) -> None:
        _log.warning("well again", part=part)

    def _after_turn(self, turn: Turn) -> None:
        self.metrics.after_turn(turn)
        self._teller.after_turn(turn)
        self._notifications.after_turn(turn)
        self._log.after_turn(turn)

    def _on_drift(self, kind: str, words: str) -> None:
        self.metrics.note_drift(kind)
        self._observe(self._clock.now(), f"alert: drift: {words}")

    def _contain(self, about: About, why: str, error: Exception) -> None:
        """What went wrong with one object is told on it, and counted."""
        self.metrics.note_contained(about.kind)
        self.metrics.note_alert()
        _log.error("contained", about=about.words, message=why, exc_info=error)
        if about.kind != "Task":
            told = f"{why}; it is left alone, and everything else goes on"
            self._teller.tell(
                Story(kind=about.kind, namespace=about.namespace, name=about.name, uid=about.uid,
                      reason="Quarantined", message=told, type="Warning")
            )  # fmt: skip

    def _observe(self, now: int, words: str) -> None:
        if words.startswith("alert"):
            self.metrics.note_alert()
        self._log.observe(now, words)

    def _note(self, note: EventNote) -> None:
        self._teller.tell(
            Story(
                kind=note.kind,
                namespace=note.namespace,
                name=note.name,
                uid=note.uid,
                reason=note.reason,
                message=note.message,
                type=note.type,
            )
        )

    async def _next_epoch(self) -> int:
        """Every start is a new owner: the epoch rises, and survives in the head."""
        try:
            head = await self.store.get("LedgerHead", "", SHARD)
        except NotFound:
            return 1
        epoch = part(head, "spec")["epoch"]
        assert isinstance(epoch, int), "the ledger wrote it"
        return epoch + 1

    async def _learn_budgets(self) -> int:
        """The admission check knows the Budgets there are, as of the version that is returned."""
        listing = await self.store.list("Budget")
        self._admission.learn(listing.items)
        return listing.version

    async def _follow_budgets(self, version: int) -> None:
        """And those that come and go."""
        while True:
            watch = self.store.watch("Budget", version)
            with suppress(Expired):
                while True:
                    event = await watch.next()
                    if event.type == "DELETED":
                        metadata = part(event.object, "metadata")
                        key = f"{metadata['namespace']}/{metadata['name']}"
                        self._admission.forget_budget(key)
                    else:
                        self._admission.learn([event.object])
            version = await self._learn_budgets()

    def _admin_token(self) -> str:
        """The one in the kubeconfig as long as it is good; a token is told only once."""
        kept = read_back(self._settings.folder.kubeconfig)
        if kept is not None and self.tokens.caller_of(kept.token) is not None:
            return kept.token
        self.tokens.revoke(ADMIN)
        return self.tokens.create(Caller(user=ADMIN, role=CallerRole.ADMIN))


async def _ensure_namespace(store: Store, name: str) -> None:
    with suppress(AlreadyExists):
        await store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
