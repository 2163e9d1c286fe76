"""What an envelope had spent at any instant, compared with a second count from its leases."""

import asyncio
from collections.abc import Iterable
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.questions.played import ADMIN, Played
from tests.questions.test_the_past import STORY

from leasehold.control.questions.burn import STEPS, burn
from leasehold.core.facts import Lease
from leasehold.core.ledger.checkpoint import BatchFacts
from leasehold.core.units import HOUR, Instant, parse_instant
from leasehold.core.world.compaction import carried_after, forget, plan_compaction
from leasehold.core.world.world import World

VISION = "vision/vision/west"
SPEECH = "speech/speech/west"


def spent_at(leases: Iterable[Lease], at: Instant, opens: Instant) -> int:
    return sum(
        lease.gpus
        * max(0, min(at, at if lease.end is None else lease.end) - max(lease.start, opens))
        for lease in leases
        if lease.payer == VISION and lease.start < at
    )


@pytest.mark.parametrize("file", [STORY], ids=["story"])
def test_every_point_of_a_burn_down_equals_the_sum_of_leases(file: Path) -> None:
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


@pytest.mark.parametrize("is_always_open", [False, True], ids=["window", "always"])
def test_compaction_does_not_change_a_burn_down(is_always_open: bool) -> None:
    played = Played(STORY)
    world = played.world
    limit_speech(world, opens=0 if is_always_open else played.start, until=played.now + HOUR)
    before = burn(world, played.now)
    assert {each.envelope for each in before.items} == {VISION, SPEECH}
    plan = plan_compaction(world, upto=world.head.seq, cutoff=played.now)
    assert {world.leases[name].payer for name in plan.leases} == {SPEECH}
    head = world.head
    carried = carried_after(
        world, plan, BatchFacts(), seq=head.seq, digest=head.digest, instant=head.instant
    )
    forget(world, plan, carried)
    assert burn(world, played.now) == before


def limit_speech(world: World, *, opens: Instant, until: Instant) -> None:
    (budget,) = (each for each in world.budgets.values() if SPEECH.startswith(each.key))
    limited = tuple(
        replace(each, start=opens, end=until, max_gpu_ms=1000 * HOUR) for each in budget.envelopes
    )
    world.put_budget(replace(budget, envelopes=limited))


def test_envelope_without_a_limit_has_no_burn_down() -> None:
    played = Played(STORY)
    assert [each.envelope for each in burn(played.world, played.now).items] == [VISION]
    assert burn(played.world, played.now, owner="org:ai:text").items == []


def test_burn_down_answer_is_reused_for_a_while() -> None:
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
