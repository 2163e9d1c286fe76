"""The child that becomes the job: from fork to exec, with nothing left of the shim in it.

Called by `shim.life` right after it forked, and never returns. It waits for the shim's word before
anything of the user's happens; what goes wrong on the way is written to the `trouble` pipe, which
exec closes.
"""

import json
import os
import resource
import signal
from collections.abc import Callable
from typing import NoReturn

Prctl = Callable[[int, int], int]

GO = b"g"
_PDEATHSIG = 1


def become(
    request: dict[str, object], *, fds: tuple[int, int, int, int], parent: int, prctl: Prctl
) -> NoReturn:
    """`fds`: where it prints, where it complains, the barrier, the trouble pipe."""
    out, err, barrier, trouble = fds
    stage = "prepare"
    try:
        os.setsid()
        null = os.open("/dev/null", os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(out, 1)
        os.dup2(err, 2)
        if os.read(barrier, 1) != GO:
            os._exit(0)  # another shim won the start, or ours is gone
        _forget_the_shim()
        stage = "user"
        _become_user(request.get("user"))
        # After the change of user, which resets it.
        prctl(_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(0)
        stage = "folder"
        os.chdir(str(request["cwd"]))
        stage = "exec"
        argv, env = request["argv"], request["env"]
        assert isinstance(argv, list)
        assert isinstance(env, dict)
        os.execvpe(argv[0], argv, env)
    except (OSError, ValueError) as error:
        code = error.errno if isinstance(error, OSError) else None
        said = json.dumps({"stage": stage, "errno": code, "text": str(error)})
        os.write(trouble, said.encode()[:2048])
    finally:
        os._exit(127)


def _forget_the_shim() -> None:
    for number in signal.valid_signals():
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.umask(0o022)
    # Otherwise the limits are those that the server was started with.
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))


def _become_user(user: object) -> None:
    if user is None:
        return
    assert isinstance(user, list)
    uid, gid = int(user[0]), int(user[1])
    assert uid != 0, "no job runs as root on behalf of somebody else"
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
