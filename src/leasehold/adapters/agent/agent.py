"""The node agent: runs the Pods of this machine's nodes as real processes, on any store.

Created and run by the composition root. Like a kubelet it watches Pods, claims those of its nodes,
lets shims run them (`adapters.agent.shim`) and reports their status. It takes no scheduling
decision. It may be killed and restarted at any time: jobs keep running without an agent, and a job
that ends meanwhile leaves a record for the next one. `pods` handles each pod, `nodes` the Node
objects.
"""

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from leasehold.adapters.agent.cgroups import find_cgroups
from leasehold.adapters.agent.devices import DeviceWatch
from leasehold.adapters.agent.foreign import Foreign
from leasehold.adapters.agent.forks import Forks
from leasehold.adapters.agent.journals import PodJournals
from leasehold.adapters.agent.limits import AgentError, Limits
from leasehold.adapters.agent.limits import EventNote as EventNote
from leasehold.adapters.agent.logs import LogQuery, NoLog, NoPod, read_log
from leasehold.adapters.agent.machine import HostMachine
from leasehold.adapters.agent.nodes import Nodes
from leasehold.adapters.agent.pod_notes import PodNotes
from leasehold.adapters.agent.pods import AgentPods
from leasehold.adapters.agent.rendezvous import Rendezvous
from leasehold.adapters.agent.requests import LocalNode as LocalNode
from leasehold.adapters.agent.requests import Requests, first_container
from leasehold.adapters.agent.users import Users
from leasehold.adapters.containment import About, Containment, kept_up
from leasehold.adapters.exclusive import take
from leasehold.adapters.following import follow
from leasehold.core.names import Wire
from leasehold.core.objects.node import Labels
from leasehold.core.objects.pod import pod_from_wire
from leasehold.core.objects.wire import part, text_at
from leasehold.core.units import Instant
from leasehold.ports.runtime import Clock, Task, Tasks
from leasehold.ports.store import Listing, Store, WatchEvent

RETRY_MS = 100
_ALIVE = "alive"  # file whose mtime shows when an agent was last alive
_READ_BYTES = 64 * 1024


class _Said(msgspec.Struct):
    """A message from a shim about the pod with this uid."""

    what: str
    uid: str
    detail: str


class Agent:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        tasks: Tasks,
        *,
        folder: Path,
        work: Path,
        nodes: Sequence[LocalNode],
        labels: Labels,
        users: Users,
        note: Callable[[EventNote], None],
        limits: Limits | None = None,
        devices: DeviceWatch | None = None,
        containment: Containment | None = None,
    ) -> None:
        """`folder`: the agent's records and logs; jobs cannot read this folder. `work`: the folder
        in which each namespace's jobs have their working folder. Raise `AgentError` if `folder`
        cannot be used, or if another agent uses it."""
        self._store, self._clock, self._tasks = store, clock, tasks
        self._folder = folder
        self._limits = limits or Limits()
        self._watch = devices or DeviceWatch()
        self._containment = containment or Containment()
        self._lock = _prepare(folder, work)
        self._spawned: list[Task] = []
        self._begun = b""  # incomplete line of a shim's message
        self._pipe = (-1, -1)
        self._stopped = tasks.signal()
        self._is_open = self._is_stopped = False
        agent = _identity(folder)
        self._cgroups = find_cgroups(f"leasehold-{agent}")
        self._forks = Forks(
            folder / "shims.err",
            on_fork=lambda pid, uid: self._pods.shims.on_fork(pid, uid),
            on_restart=lambda: self._pods.shims.ask_again(),
        )
        self._nodes = Nodes(
            store, clock, tasks, nodes=nodes, labels=labels, agent=agent,
            heartbeat_ms=self._limits.heartbeat_ms, containment=self._containment,
        )  # fmt: skip
        self._foreign = Foreign(
            store, clock, nodes=nodes, labels=labels, watch=self._watch,
            devices_ms=self._limits.devices_ms,
        )  # fmt: skip
        requests = Requests(
            work=work,
            notify=folder / "agent.pipe",
            users=users,
            cgroups=self._cgroups,
            meetings=Rendezvous(),
            limits=self._limits,
            hosts=frozenset(node.name for node in nodes),
        )
        machine = HostMachine(
            journals=PodJournals(folder),
            requests=requests,
            nodes=self._nodes,
            foreign=self._foreign,
            forks=self._forks,
            advice=PodNotes(note, self._cgroups),
            agent=agent,
            labels=labels,
            limits=self._limits,
            containment=self._containment,
        )
        self._pods = AgentPods(store, clock, tasks, machine)
        self._nodes.on_death = self._pods.on_death
        self._nodes.on_return = self._pods.on_return
        self._nodes.is_empty = self._pods.is_empty
        self._foreign.is_ours = self._pods.owns

    async def run(self) -> None:
        """Run until `stop`."""
        await self.prepare()
        if self._is_stopped:  # stopped before it began
            return
        for name, work in (
            ("agent-forks", self._forks.serve),
            ("agent-nodes", self._nodes.run),
            ("agent-foreign", self._foreign.run),
            ("agent-alive", self._stay_alive),
            ("agent-pods", self._watch_pods),
        ):
            task = kept_up(name, work, clock=self._clock, containment=self._containment)
            self._spawned.append(self._tasks.spawn(name, task))
        await self._stopped.wait(None)

    async def prepare(self) -> None:
        """Adopt running jobs and register the nodes. The caller must do this before `run`."""
        if self._is_open or self._is_stopped:
            return
        self._is_open = True
        self._open_pipe()
        await self._forks.open()
        self._pods.adopt(self._last_alive())
        await self._nodes.prepare()

    @property
    def trouble(self) -> str:
        """Why no pod can be started right now; "" if pods can be started."""
        return (
            ""
            if self._forks.is_open
            else "the helper process that starts jobs has died; the agent is starting a new one"
        )

    async def stop(self) -> None:
        """Stop the agent but not the jobs; the next agent on this folder adopts them."""
        self._is_stopped = True
        for task in self._spawned:
            task.cancel()
        self._pods.close()
        if self._is_open:
            self._is_open = False
            asyncio.get_running_loop().remove_reader(self._pipe[0])
            await self._forks.close()
            for fd in self._pipe:
                os.close(fd)
        self._watch.close()
        self._cgroups.remove()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
        self._stopped.set()

    async def end_all(self) -> None:
        """Kill every job on this machine, and return when all are gone."""
        await self._pods.end_all()

    def logs(
        self,
        pod: Wire,
        *,
        follow: bool = False,
        timestamps: bool = False,
        tail_lines: int | None = None,
        since_ms: Instant | None = None,
        limit_bytes: int | None = None,
        previous: bool = False,
    ) -> AsyncIterator[bytes]:
        """Return the output of the pod's job; with `previous`, that of the pod's previous attempt.
        A `pod` without a uid names a deleted pod: return the output that was kept of it. Raise
        `NoLog`, before the first chunk, if no log can exist."""
        metadata = part(pod, "metadata")
        name = text_at(metadata, "name")
        if not text_at(metadata, "uid"):
            journal = self._pods.past.find(text_at(metadata, "namespace"), name)
            if journal is None or previous:
                raise NoPod(f'pods "{name}" not found')
        elif previous:
            journal = self._pods.past.before(pod_from_wire(pod))
            if journal is None:
                container = text_at(first_container(pod), "name")
                why = f'previous terminated container "{container}" in pod "{name}" not found'
                raise NoLog(why)
        else:
            journal = self._pods.find(text_at(metadata, "uid"))
        if journal is None or journal.started is None:
            container = text_at(first_container(pod), "name")
            raise NoLog(f'container "{container}" in pod "{name}" is waiting to start')
        query = LogQuery(
            follow=follow,
            timestamps=timestamps,
            tail_lines=tail_lines,
            since_ms=since_ms,
            limit_bytes=limit_bytes,
        )
        return read_log(journal, query, self._clock)

    @property
    def running(self) -> int:
        """The number of pods that have processes on this machine."""
        return len(self._pods.running)

    async def _watch_pods(self) -> None:
        await follow(
            self._store, self._clock, "Pod", listed=self._show_all, changed=self._show_change
        )

    def _show_all(self, listing: Listing) -> None:
        uids = {text_at(part(wire, "metadata"), "uid") for wire in listing.items}
        self._pods.keep_only(uids)
        for wire in listing.items:
            self._show(wire)

    def _show_change(self, event: WatchEvent) -> None:
        if self._pods.is_own(event.version):
            return
        if event.type == "DELETED":
            self._pods.forget(text_at(part(event.object, "metadata"), "uid"))
        else:
            self._show(event.object)

    def _show(self, wire: Wire) -> None:
        """Process one Pod object. An error stops only the handling of that pod."""
        try:
            self._pods.see(wire)
        except Exception as error:
            metadata = part(wire, "metadata")
            name, namespace, uid = (text_at(metadata, key) for key in ("name", "namespace", "uid"))
            self._containment.failed(About("Pod", name, namespace, uid), error)

    async def _stay_alive(self) -> None:
        due = 0
        while True:
            if self._clock.monotonic() >= due:
                due = self._clock.monotonic() + self._limits.sign_of_life_ms
                with suppress(OSError):
                    (self._folder / _ALIVE).touch()
            self._pods.look_for_records()
            await self._clock.sleep(self._limits.records_ms)

    def _last_alive(self) -> Instant:
        try:
            return (self._folder / _ALIVE).stat().st_mtime_ns // 1_000_000
        except FileNotFoundError:
            return 0

    def _open_pipe(self) -> None:
        path = self._folder / "agent.pipe"
        with suppress(FileExistsError):
            os.mkfifo(path, 0o600)
        reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        # Keep a writing end open, so that the pipe does not end when no shim has it open.
        writer = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._pipe = (reader, writer)
        asyncio.get_running_loop().add_reader(reader, self._on_message)

    def _on_message(self) -> None:
        with suppress(BlockingIOError):
            *lines, self._begun = (self._begun + os.read(self._pipe[0], _READ_BYTES)).split(b"\n")
            for line in lines:
                with suppress(msgspec.MsgspecError):  # not written by a shim
                    said = msgspec.json.decode(line, type=_Said)
                    self._pods.hear(said.what, said.uid, said.detail)


def _prepare(folder: Path, work: Path) -> int:
    """Create both folders and lock `folder`, so that no other agent uses it; return the lock."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
        _make_open(work)
        _check_ours(work)
        _check_reachable(work)
        lock = os.open(folder / "agent.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        why = f"{error.strerror}: {error.filename}"
        raise AgentError(f"the agent cannot use its folder: {why}") from error
    if not take(lock):
        os.close(lock)
        raise AgentError(f"another agent runs on {folder}; stop it first")
    return lock


def _make_open(work: Path) -> None:
    """Create the folder so that jobs of all users can enter it, whatever the umask."""
    missing = [each for each in (work, *work.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir()
        each.chmod(0o755)
    work.mkdir(exist_ok=True)  # raises if it is a file


def _check_ours(work: Path) -> None:
    """Require that only our user can write in `work`: another user could exchange the folders of
    two namespaces."""
    status = work.stat()
    for owner in (work.lstat().st_uid, status.st_uid):  # it may be a link
        if owner != os.geteuid():
            raise AgentError(
                f"{work} belongs to uid {owner}, and that user could exchange the folders of "
                "jobs; name another work folder (--work), or take ownership with chown"
            )
    if status.st_mode & 0o022:
        raise AgentError(
            f"{work} can be written by other users, and they could exchange the folders of jobs; "
            f"run chmod go-w {work}, or name another work folder (--work)"
        )


def _check_reachable(work: Path) -> None:
    """As root, require that every user can enter `work`: jobs run as other users."""
    if os.geteuid() != 0:
        return
    for folder in (work, *work.resolve().parents):
        if not folder.stat().st_mode & 0o001:
            raise AgentError(
                f"jobs run as their own Unix users and cannot reach {work}, because {folder} is "
                "closed to them; name another work folder (--work)"
            )


def _identity(folder: Path) -> str:
    """Return the agent's id, which is stored in `folder`; create the id if it is missing."""
    path = folder / "agent.id"
    if not path.exists():
        coming = folder / "agent.id.new"
        coming.write_text(secrets.token_hex(4), encoding="ascii")
        coming.rename(path)
    return path.read_text(encoding="ascii")
