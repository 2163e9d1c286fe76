"""Encodes a request for the zygote: one frame of strings, so that a shim parses no JSON.

Called by `forks`. `shim/request.h` defines the contents and their order; a shim refuses every other
frame. The agent writes the request and chooses its folders, but parts of their text come from
users.
"""

import os
from collections.abc import Iterator

from leasehold.adapters.agent.journals import PodJournal

FRAME_BYTES_MAX = 32 * 1024 * 1024  # command and environment take at most half of it
_VERSION = "leasehold-shim 2"


def frame_of(journal: PodJournal) -> bytes:
    strings = [str(each) for each in _strings(journal)]
    joined = "\0".join(strings)
    if joined.count("\0") != len(strings) - 1:
        # A zero byte would end its string; the user's text after it would be read as fields.
        joined = "\0".join(each.replace("\0", "\ufffd") for each in strings)
    body = os.fsencode(joined) + b"\0"
    assert len(body) <= FRAME_BYTES_MAX, journal.uid
    return len(body).to_bytes(4, "little") + body


def _strings(journal: PodJournal) -> Iterator[object]:
    request = journal.request
    yield from (_VERSION, journal.folder, journal.uid, journal.request_bytes, request["seal"])
    yield from (journal.logs_from_folder, request["notify"], request["cwd"])
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
    groups = request["groups"]
    assert isinstance(groups, list)
    yield len(groups)
    yield from groups
