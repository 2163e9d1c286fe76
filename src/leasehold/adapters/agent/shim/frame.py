"""A request as the zygote reads it: one frame of strings, so that a shim parses no JSON.

Called by `forks`. `shim/request.h` says what is in a frame and in which order; a shim refuses any
other. Request and folder are the agent's own, but what a user wrote is in them.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from leasehold.adapters.agent.shim.records import Record

FRAME_BYTES_MAX = 32 * 1024 * 1024  # words and variables come to half of it at most
_VERSION = "leasehold-shim 1"


def frame_of(folder: Path, request: Record) -> bytes:
    strings = [str(each) for each in _strings(folder, request)]
    joined = "\0".join(strings)
    if joined.count("\0") != len(strings) - 1:
        # A zero byte would end its string, and let whoever wrote it say what follows.
        joined = "\0".join(each.replace("\0", "\ufffd") for each in strings)
    body = os.fsencode(joined) + b"\0"
    assert len(body) <= FRAME_BYTES_MAX, folder
    return len(body).to_bytes(4, "little") + body


def _strings(folder: Path, request: Record) -> Iterator[object]:
    yield from (_VERSION, folder, request["uid"], request["notify"], request["cwd"])
    user, argv, env = request["user"], request["argv"], request["env"]
    assert isinstance(argv, list)
    assert isinstance(env, dict)
    yield from user if isinstance(user, list) else ("", "")
    for number in ("log_bytes_max", "log_files_max", "heartbeat_ms", "grace_ms"):
        yield request[number]
    yield len(argv)
    yield from argv
    yield len(env)
    for variable in env.items():
        yield from variable
    cgroups = request["cgroups"]
    assert isinstance(cgroups, list)
    yield len(cgroups)
    for cgroup in cgroups:
        yield cgroup["path"]
        yield len(cgroup["set"])
        for setting in cgroup["set"]:
            yield from setting
