"""Requests that the zygote must refuse: truncated, changed, too large, random.

The program is compiled to end on undefined behaviour. It would then hang up, and the test would
fail.
"""

import os
import random
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.agent.zygote import Zygote, journal_for, request, variant

from leasehold.adapters.agent.journals import PodJournal
from leasehold.adapters.agent.shim.frame import FRAME_BYTES_MAX, frame_of
from leasehold.adapters.agent.shim.records import Record

NOBODY = 65_534
REFUSED = (0, "")


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("strict")
    for place in (folder, *folder.parents[:3]):
        place.chmod(place.stat().st_mode | 0o011)
    return variant(folder, "-fsanitize=undefined", "-fsanitize-trap=undefined")


@pytest.fixture
def zygote(ground: Path, strict: Path) -> Iterator[Zygote]:
    """Run the zygote as user `nobody`: a request accepted by accident must do no harm."""
    user = NOBODY if os.geteuid() == 0 else None
    with Zygote(ground / "shims.err", program=strict, user=user) as made:
        yield made


def sample() -> Record:
    """Return a request with a value in every field, in a folder that cannot exist."""
    return request(
        Path("/proc/none"), "/bin/true", "", "word",
        env={"PATH": "/bin", "EMPTY": ""}, user=[NOBODY, NOBODY],
        cgroups=[{"path": "/proc/none/a", "set": [["memory.max", 1], ["cpu.max", "1 2"]]},
                 {"path": "/proc/none/b", "set": []}],
        groups=[7, 8],
    )  # fmt: skip


def body_of(asked: Record) -> bytes:
    sealed = asked | {"seal": "0123456789abcdef"}
    journal = PodJournal(Path("/proc/none"), "pod-1", request=sealed, request_bytes=1000)
    return frame_of(journal)[4:]


def framed(body: bytes) -> bytes:
    return struct.pack("<I", len(body)) + body


def still_runs_jobs(ground: Path, zygote: Zygote) -> bool:
    journal = journal_for(ground, request(ground, "/bin/true"))
    for path in (ground, journal.path.parent, journal.path):
        path.chmod(0o777)
    return zygote.run(journal).code == 0


def test_unchanged_frame_is_accepted(zygote: Zygote) -> None:
    zygote.send(framed(body_of(sample())))

    answer = zygote.answer()

    assert answer is not None
    assert answer[0] > 0
    assert answer[1] == "pod-1"


def test_frame_truncated_at_any_byte_is_refused(ground: Path, zygote: Zygote) -> None:
    body = body_of(sample())
    for size in range(len(body)):
        zygote.send(framed(body[:size]))
        assert zygote.answer() == REFUSED, size
    assert still_runs_jobs(ground, zygote)


def test_frame_with_trailing_bytes_is_refused(ground: Path, zygote: Zygote) -> None:
    for added in (b"\0", b"x", b"x\0", b"\0\0"):
        zygote.send(framed(body_of(sample()) + added))
        assert zygote.answer() == REFUSED, added
    assert still_runs_jobs(ground, zygote)


@pytest.mark.parametrize(
    ("field", "values"),
    [
        (0, [b"", b"leasehold-shim 1"]),
        (1, [b"", b"relative"]),
        (2, [b"", b"x" * 129, b"a\nb", b"a/b", b"..", b".hidden"]),
        (3, [b"", b"-1", b"x", b"9007199254740993"]),
        (4, [b"", b"x" * 65]),
        (5, [b""]),
        (8, [b"-1", b"x", b"4294967295", b"99999999999999999999", b""]),
        (9, [b"-1", b"", b" 1"]),
        (10, [b"", b"-1", b"1.5", b"0x10", b"9007199254740993", b"9" * 40]),
        (14, [b"0", b"2", b"4", b"-1", b"33554433", b"18446744073709551615", b"9" * 30, b""]),
        (18, [b"1", b"3", b"-1", b"4294967296", b"1152921504606846976"]),
        (23, [b"1", b"3", b"9", b"x"]),
        (24, [b"relative", b""]),
        (25, [b"1", b"3", b"17", b"-2"]),
        (32, [b"0", b"1", b"3", b"-1", b"65537", b"x", b""]),
        (34, [b"-1", b"x", b"4294967295", b""]),
    ],
)
def test_frame_with_invalid_field_is_refused(
    ground: Path, zygote: Zygote, field: int, values: list[bytes]
) -> None:
    for value in values:
        fields = body_of(sample()).split(b"\0")
        assert fields[field] != value
        fields[field] = value
        zygote.send(framed(b"\0".join(fields)))
        assert zygote.answer() == REFUSED, value
    assert still_runs_jobs(ground, zygote)


def test_groups_without_a_user_are_refused(ground: Path, zygote: Zygote) -> None:
    zygote.send(framed(body_of(sample() | {"user": None})))

    assert zygote.answer() == REFUSED
    assert still_runs_jobs(ground, zygote)


def test_zygote_survives_thousands_of_changed_and_random_frames(
    ground: Path, zygote: Zygote
) -> None:
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    body = body_of(sample())
    refused = 0
    for _ in range(4000):
        zygote.send(framed(_changed(body, chance)))
        answer = zygote.answer()
        assert answer is not None, f"seed {seed}"
        refused += answer[0] == 0
    assert refused > 2000, f"seed {seed}"
    assert still_runs_jobs(ground, zygote), f"seed {seed}"


def test_frame_is_read_in_any_portions(ground: Path, zygote: Zygote) -> None:
    frame = framed(body_of(sample()))
    for byte in frame:
        zygote.send(bytes((byte,)))
    answer = zygote.answer()
    assert answer is not None
    assert answer[0] > 0
    zygote.send(frame + frame + frame[:7])
    assert [bool(zygote.answer()) for _ in range(2)] == [True, True]
    zygote.send(frame[7:])
    assert zygote.answer() is not None
    assert still_runs_jobs(ground, zygote)


def test_malformed_frame_of_maximum_size_is_refused_and_zygote_goes_on(
    ground: Path, zygote: Zygote
) -> None:
    zygote.send(framed(b"\0" * FRAME_BYTES_MAX))
    assert zygote.answer() == REFUSED
    assert still_runs_jobs(ground, zygote)


@pytest.mark.parametrize("size", [FRAME_BYTES_MAX + 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF])
def test_zygote_ends_after_a_frame_size_above_the_maximum(zygote: Zygote, size: int) -> None:
    zygote.send(struct.pack("<I", size) + body_of(sample()))

    assert zygote.answer() is None
    assert zygote.process.wait() == 1
    assert f"a request of {size} bytes is too large" in zygote.errors.read_text()


def test_zygote_ends_when_client_hangs_up_within_a_frame(zygote: Zygote) -> None:
    zygote.send(framed(body_of(sample()))[:50])

    assert zygote.close() == 0


def _changed(body: bytes, chance: random.Random) -> bytes:
    if chance.random() < 0.1:
        return chance.randbytes(chance.randrange(300))
    changed = bytearray(body)
    for _ in range(chance.randrange(1, 6)):
        place = chance.randrange(len(changed) + 1)
        kind = chance.randrange(4)
        if kind == 0:
            changed[place : place + 1] = chance.randbytes(1)
        elif kind == 1:
            changed[place:place] = chance.choice((b"\0", b"9", b"99999", b"-", b"\xff", b"/"))
        elif kind == 2:
            del changed[place : place + chance.randrange(1, 9)]
        else:
            other = chance.randrange(len(changed) + 1)
            changed[place:place] = changed[other : other + chance.randrange(1, 40)]
    return bytes(changed)
