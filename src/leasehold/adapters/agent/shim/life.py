"""The life of one pod: start its job once, keep what it prints, end all of it, record how it ended.

Runs in a process of its own per pod, forked by `shim.zygote`, in a session of its own: the control
plane may die and come back meanwhile. It listens to one signal, SIGTERM, which says "look at the
stop record". It reports by records in the pod's folder; the pipe to the agent only says that there
is something to read.

Times: the start is by the wall clock; everything after it is the start plus time that passed since
boot, so that a clock that is set back does not make a job end before it began.
"""

import json
import os
import select
import signal
import time
from contextlib import suppress

from leasehold.adapters.agent.shim import job, offspring, records
from leasehold.adapters.agent.shim.logfile import LogFile

NOT_FOUND, NOT_EXECUTABLE, CANNOT_RUN = 127, 126, 128  # exit codes, as shells and runtimes have it
READ_BYTES = 64 * 1024
LINE_PATIENCE_MS = 100  # how long a line may lack its end before its beginning is shown
_SUBREAPER = 36
_AT_ONCE_MS = 1  # a grace that is none


def live(folder: str, prctl: job.Prctl) -> None:
    """Called in a fresh process; returns when the pod is over, or was never ours to start."""
    os.setsid()
    prctl(_SUBREAPER, 1)
    here = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    request = records.read(here, records.REQUEST)
    if request is None:
        return
    shim = Shim(folder, here, request)
    try:
        is_ours = shim.start(prctl)
    except OSError as error:
        shim.tell("refused", f"{error.strerror}: {folder}")
        return
    if is_ours:
        shim.attend()


class Shim:
    def __init__(self, place: str, folder: int, request: records.Record) -> None:
        self._place = place
        self._folder = folder
        self._request = request
        self._log = LogFile(
            folder,
            bytes_max=_whole(request["log_bytes_max"]),
            files_max=_whole(request["log_files_max"]),
        )
        cgroups = request["cgroups"]
        assert isinstance(cgroups, list)
        self._cgroups: list[offspring.Cgroup] = cgroups
        self._pid = 0
        self._started_at = 0  # by the wall
        self._since_boot = 0  # the same moment, since boot
        self._deadline: int | None = None  # of a stop, since boot
        self._is_signalled = False
        self._is_killed = False
        self._error: tuple[int, str] | None = None  # why it did not run: exit code, sentence
        self._status: int | None = None  # of the main process, once reaped
        self._main_ended_at = 0
        self._outputs: dict[int, str] = {}
        self._trouble = -1
        self._wake = -1
        self._poll = select.poll()

    def start(self, prctl: job.Prctl) -> bool:
        """Forks the job; lets it go if this is the one shim that may. False when it is not."""
        out, out_end = os.pipe()
        err, err_end = os.pipe()
        barrier_end, barrier = os.pipe()
        self._trouble, trouble_end = os.pipe()
        user = self._request.get("user")
        if isinstance(user, list):
            for fd in (out_end, err_end):  # so that it may open /dev/stdout
                os.fchown(fd, int(user[0]), int(user[1]))
        me = os.getpid()
        self._listen()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(barrier)
            fds = (out_end, err_end, barrier_end, trouble_end)
            job.become(self._request, fds=fds, parent=me, prctl=prctl)
        for fd in (out_end, err_end, barrier_end, trouble_end):
            os.close(fd)
        try:
            is_ours = self._claim(me)
        finally:
            if not self._started_at:
                os.kill(self._pid, signal.SIGKILL)
        if is_ours:
            self._outputs = {out: "stdout", err: "stderr"}
            for fd in (out, err, self._trouble):
                os.set_blocking(fd, False)
                self._poll.register(fd, select.POLLIN)
            self._protect()
            self._release(barrier)
        return is_ours

    def attend(self) -> None:
        """Until nothing of the job is left; then the exit record."""
        while self._status is None:
            self._hear(self._poll.poll(self._patience()))
            self._reap()
            self._end_in_time()
        offspring.kill_all(self._cgroups)
        finished_at = self._now()
        self._drain()
        record = self._exit_record(finished_at)
        records.write_exit(self._folder, record, lambda: time.sleep(0.5))
        offspring.remove(self._cgroups)
        self.tell("ended")

    def tell(self, what: str, detail: str = "") -> None:
        """Nobody may be listening, or too slowly: the records say the same."""
        line = json.dumps({"what": what, "uid": self._request["uid"], "detail": detail[:2000]})
        with suppress(OSError):
            fd = os.open(str(self._request["notify"]), os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                os.write(fd, line.encode() + b"\n")
            finally:
                os.close(fd)

    # Starting.

    def _listen(self) -> None:
        self._wake, wake_end = os.pipe()
        for fd in (self._wake, wake_end):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(wake_end, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, _hear_nothing)
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)
        self._poll.register(self._wake, select.POLLIN)

    def _claim(self, me: int) -> bool:
        records.keep_room_for_exit(self._folder)
        at, since = records.wall_ms(), records.boot_ms()
        is_ours = records.claim(
            self._folder,
            {
                "by": "shim",
                "boot": records.boot_id(),
                "shim": me,
                "shim_ticks": records.ticks_of(me),
                "pid": self._pid,
                "pid_ticks": records.ticks_of(self._pid),
                "started_ms": at,
                "started_boot_ms": since,
            },
        )
        if is_ours and self._is_in_place():
            self._started_at, self._since_boot = at, since
            return True
        records.give_room_back(self._folder)
        return False

    def _is_in_place(self) -> bool:
        """A folder that an agent gave up is moved away before it is emptied, so that what is won
        in one that has moved is void."""
        try:
            there = os.stat(self._place)  # noqa: PTH116
        except FileNotFoundError:
            return False
        return os.path.samestat(there, os.fstat(self._folder))

    def _protect(self) -> None:
        """Whatever the kernel must kill for memory, let it be the job and not its witness."""
        with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:  # noqa: PTH123
            file.write("-900")

    def _release(self, barrier: int) -> None:
        try:
            offspring.make(self._cgroups, self._pid)
            os.write(barrier, job.GO)
        except OSError as error:
            place = f" {error.filename}" if error.filename else ""
            self._error = (CANNOT_RUN, f"its cgroup cannot be set up: {error.strerror}{place}")
        finally:
            os.close(barrier)

    # While it runs.

    def _patience(self) -> int:
        """How long to sleep: until a line is shown unended, a stop is due, or a sign of life."""
        waits = [_whole(self._request["heartbeat_ms"])]
        if self._log.has_begun:
            waits.append(LINE_PATIENCE_MS)
        if self._deadline is not None and not self._is_killed:
            waits.append(max(self._deadline - records.boot_ms(), 0))
        return min(waits)

    def _hear(self, events: list[tuple[int, int]]) -> None:
        if not events:
            self._log.flush()
            with suppress(OSError):
                os.utime(records.STARTED, dir_fd=self._folder)
        for fd, _ in events:
            if fd in self._outputs:
                self._read(fd)
            elif fd == self._trouble:
                self._hear_trouble()
            else:
                self._hear_signals()

    def _read(self, fd: int) -> bool:
        """False when there is nothing more for now, or ever."""
        try:
            output = os.read(fd, READ_BYTES)
        except BlockingIOError:
            return False
        if not output:
            self._poll.unregister(fd)
            del self._outputs[fd]
            os.close(fd)
            return False
        self._log.add(self._outputs[fd], output)
        return True

    def _hear_trouble(self) -> None:
        said = os.read(self._trouble, 4096)
        self._poll.unregister(self._trouble)
        os.close(self._trouble)
        if said:
            self._error = _explain(json.loads(said), self._request)
        elif self._error is None:
            self.tell("started")

    def _hear_signals(self) -> None:
        numbers = os.read(self._wake, 4096)
        if signal.SIGTERM not in numbers:
            return
        stop = records.read(self._folder, records.STOP)
        if stop is None:  # somebody else's signal
            due = records.boot_ms() + _whole(self._request["grace_ms"])
            grace = _whole(self._request["grace_ms"])
        else:
            due, grace = _whole(stop["due_boot_ms"]), _whole(stop["grace_ms"])
        if grace <= _AT_ONCE_MS:
            due = 0
        self._deadline = due if self._deadline is None else min(self._deadline, due)
        if due and not self._is_signalled:
            self._is_signalled = True
            for number in (signal.SIGTERM, signal.SIGCONT):
                with suppress(ProcessLookupError):
                    os.killpg(self._pid, number)

    def _end_in_time(self) -> None:
        if self._deadline is None or self._status is not None or self._is_killed:
            return
        if records.boot_ms() >= self._deadline:
            self._is_killed = True
            # The others go with it, when the main process is reaped.
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            if pid == self._pid:
                self._status, self._main_ended_at = status, self._now()

    # When it has ended.

    def _drain(self) -> None:
        for fd in list(self._outputs):
            while self._read(fd):
                pass
        if self._error is None and self._trouble >= 0:
            with suppress(OSError):  # its trouble may not have been heard yet
                said = os.read(self._trouble, 4096)
                self._error = _explain(json.loads(said), self._request) if said else None
        self._log.close()

    def _exit_record(self, finished_at: int) -> records.Record:
        assert self._status is not None
        number = os.WTERMSIG(self._status) if os.WIFSIGNALED(self._status) else None
        code = 128 + number if number is not None else os.WEXITSTATUS(self._status)
        error = ""
        if self._error is not None:
            (code, error), number = self._error, None
        is_oom = code != 0 and not self._is_killed and offspring.oom_kills(self._cgroups) > 0
        return {
            "code": code,
            "signal": number,
            "error": error,
            "oom": is_oom,
            "killed": self._is_killed,
            "started_ms": self._started_at,
            "main_ended_ms": self._main_ended_at,
            "finished_ms": finished_at,
            "dropped_bytes": self._log.dropped_bytes,
            "dropped_lines": self._log.dropped_lines,
        }

    def _now(self) -> int:
        return self._started_at + records.boot_ms() - self._since_boot


def _explain(said: dict[str, object], request: records.Record) -> tuple[int, str]:
    """What went wrong between fork and exec, as an exit code and a sentence."""
    argv = request["argv"]
    assert isinstance(argv, list)
    number = said["errno"]
    reason = os.strerror(number) if isinstance(number, int) else str(said["text"])
    match said["stage"]:
        case "folder":
            return CANNOT_RUN, f"its working directory {request['cwd']} cannot be entered: {reason}"
        case "user":
            return CANNOT_RUN, f"it cannot become user {request['user']}: {reason}"
        case "exec" if reason == os.strerror(2):
            return NOT_FOUND, f"command not found: {argv[0]}"
        case "exec":
            return NOT_EXECUTABLE, f"{argv[0]} cannot be run: {reason}"
    return CANNOT_RUN, f"it cannot be started: {reason}"


def _whole(value: object) -> int:
    assert isinstance(value, int), value
    return value


def _hear_nothing(number: int, frame: object) -> None:
    """Python writes the signal's number to the wake-up pipe only if it has a handler."""
