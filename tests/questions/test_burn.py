"""What an envelope had spent at any instant: as its leases say, counted another way."""

import asyncio
from collections.abc import Iterable
from pathlib import Path

import pytest
from tests.questions.archived import compacted
from tests.questions.played import ADMIN, Played
from tests.questions.test_the_past import STORY

from leasehold.control.questions.burn import STEPS, burn
from leasehold.core.facts import Lease
from leasehold.core.units import HOUR, MINUTE, Instant, parse_instant

VISION = "vision/vision/west"


def spent_at(leases: Iterable[Lease], at: Instant, opens: Instant) -> int:
    return sum(
        lease.gpus
        * max(0, min(at, at if lease.end is None else lease.end) - max(lease.start, opens))
        for lease in leases
        if lease.payer == VISION and lease.start < at
    )


@pytest.mark.parametrize("file", [STORY], ids=["story"])
def test_every_point_is_what_leases_say(file: Path) -> None:
    played = Played(file)
    (row,) = burn(played.world, played.now).items
    assert row.envelope == VISION
    assert len(row.points) == STEPS + 1
    opens = played.world.envelopes[VISION].start
    for each in row.points:
        at = parse_instant(str(each.at))
        assert at is not None
        assert each.gpu_ms == spent_at(played.world.leases.values(), at, opens)
    assert row.points[-1].gpu_ms > 0
    assert parse_instant(str(row.points[0].at)) == opens


def test_what_is_archived_is_a_sum_and_the_rest_is_exact() -> None:
    """The course begins where all that is spent since is live."""
    played = Played(STORY)
    ends = played.start + 100 * MINUTE
    (row,) = burn(played.world, played.now, archived_to=ends).items
    assert parse_instant(str(row.points[0].at)) == ends
    opens = played.world.envelopes[VISION].start
    leases = list(played.world.leases.values())
    assert row.points[0].gpu_ms == spent_at(leases, ends, opens)


def test_an_envelope_without_a_limit_has_no_course() -> None:
    played = Played(STORY)
    assert [each.envelope for each in burn(played.world, played.now).items] == [VISION]
    assert burn(played.world, played.now, owner="org:ai:text").items == []


def test_it_is_told_again_for_a_while() -> None:
    played = Played(STORY)
    questions = played.questions()

    def asked() -> list[str]:
        found = asyncio.run(questions.ask(ADMIN, "burn", {}, None))["items"]
        assert isinstance(found, list)
        return [each["points"][-1]["at"] for each in found]

    first = asked()
    played.stage.advance_to(played.now + 10_000)
    assert asked() == first
    played.stage.advance_to(played.now + HOUR)
    assert asked() > first


def test_an_archive_that_does_not_say_how_far_it_reaches_is_not_read() -> None:
    found = asyncio.run(compacted(Played(STORY)).ask(ADMIN, "burn", {}, None))
    assert found["items"]
