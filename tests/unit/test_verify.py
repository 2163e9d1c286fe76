"""The verifier names the first impossible record; each rule has a ledger that breaks it."""

import copy
from collections.abc import Callable

import msgspec
import pytest
from msgspec.structs import replace
from tests.unit.records import FACTS, T0, a_lease, lines_of
from tests.unit.test_lottery import a_resolution, draw_order

from leasehold.core.facts import Cause, Closed, Closure, ClosureReason, Ending, Lease, Opened, Role
from leasehold.core.ledger import lottery
from leasehold.core.ledger.batch import Batch, Closing, NodeFact, resolution_digest
from leasehold.core.ledger.chain import canonical
from leasehold.core.ledger.charges import Charges
from leasehold.core.ledger.checkpoint import Carried
from leasehold.core.ledger.verify import Fold, verify_lines, verify_objects
from leasehold.core.names import Wire
from leasehold.core.objects.lease import lease_to_wire
from leasehold.core.objects.resolution import resolution_to_wire

FIRST = a_lease(2, 0)
SPARE = a_lease(2, 1, slots=(2, 3), role=Role.SPARE)
FILLER = a_lease(3, 0, slots=(2, 3), role=Role.BORROWED, run="fill", start=T0 + 1)
EAST = "team/money/east"


def at(seq: int, **parts: object) -> Batch:
    return Batch(seq=seq, epoch=1, instant=T0 + seq - 2, **parts)  # type: ignore[arg-type]


OPEN = at(2, opened=(FIRST, SPARE))


def closing(name: str, end: int, reason: str = "Completed", cause: Cause | None = None) -> Closing:
    return Closing(lease=name, end=end, reason=reason, cause=cause)


HONEST = (
    FACTS,
    OPEN,
    at(3, opened=(FILLER,)),
    at(
        4, ending=((FIRST.name, "Shrink", T0 + 30),), closed=(closing(SPARE.name, T0, "DropSpare"),)
    ),
    at(
        5,
        closed=(closing(FIRST.name, T0 + 3, "Shrink"), closing(FILLER.name, T0 + 2, "Refinanced")),
        opened=(
            msgspec.structs.replace(
                a_lease(5, 0, slots=(2,), role=Role.BORROWED, run="fill", payer=EAST),
                reason=Opened.REFINANCE,
                start=T0 + 2,
                pod=FILLER.pod,
            ),
            a_lease(5, 1, slots=(0, 1), node="n1", start=T0 + 3),
        ),
    ),
)


def test_honest_ledger_verifies() -> None:
    assert verify_lines(lines_of(*HONEST)) is None
    assert verify_lines([]) is None


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("digest", "00" * 32, "digest"),
        ("seq", 3, "another seq"),
        ("epoch", 2, "another seq or epoch"),
        ("batch", None, "has no batch"),
        ("batch", {"seq": 2}, "not well-formed"),
        ("batch", {"seq": 2, "epoch": 1, "instant": 1.5}, "not well-formed"),
    ],
)
def test_tampered_ledger_line_is_reported(field: str, value: object, said: str) -> None:
    lines = lines_of(*HONEST)
    lines[1] = {**lines[1], field: value}
    problem = verify_lines(lines)
    assert problem is not None
    assert said in str(problem)
    assert problem.seq in (2, 3)


def test_changed_field_of_a_batch_breaks_its_digest() -> None:
    lines = copy.deepcopy(lines_of(*HONEST))
    batch = lines[1]["batch"]
    assert isinstance(batch, dict)
    batch["opened"][0]["spec"]["owner"] = "org:b"
    problem = verify_lines(lines)
    assert problem is not None
    assert (problem.seq, problem.record) == (2, "digest")


def test_missing_ledger_line_is_reported() -> None:
    lines = lines_of(*HONEST)
    del lines[2]
    problem = verify_lines(lines)
    assert problem is not None
    assert problem.seq == 4


AFTER = a_lease(3, 0, slots=(4, 5))
WIDE = tuple(range(8))


def third(**parts: object) -> tuple[Batch, ...]:
    return (FACTS, OPEN, at(3, **parts))


def reopened(**changes: object) -> tuple[Batch, ...]:
    return third(opened=(msgspec.structs.replace(AFTER, **changes),))


# Ledgers that chain correctly but are impossible.
BROKEN: dict[str, Callable[[], tuple[Batch, ...]]] = {
    "seq": lambda: (FACTS, msgspec.structs.replace(OPEN, seq=3, opened=())),
    "epoch": lambda: (FACTS, msgspec.structs.replace(OPEN, epoch=0)),
    "instant": lambda: (FACTS, msgspec.structs.replace(OPEN, instant=T0 - 1)),
    "opened twice": lambda: third(opened=(AFTER, AFTER)),
    "another batch": lambda: reopened(batch=4),
    "another run": lambda: reopened(run="other"),
    "future start": lambda: reopened(start=T0 + 2),
    "unknown node": lambda: reopened(node="n7"),
    "deleted node": lambda: third(facts_nodes=(NodeFact(name="n1", gone=True),), opened=(AFTER,)),
    "same slot": lambda: reopened(slots=(1,)),
    "no slots": lambda: reopened(slots=()),
    "slot twice": lambda: reopened(slots=(4, 4)),
    "filler on active": lambda: reopened(slots=(0,), role=Role.BORROWED),
    "filler on free": lambda: reopened(role=Role.BORROWED),
    "two fillers": lambda: third(opened=(FILLER, msgspec.structs.replace(FILLER, name="fill-3-1"))),
    "active on filler": lambda: (
        *third(opened=(FILLER,)),
        at(4, closed=(closing(SPARE.name, T0),), opened=(a_lease(4, 0, slots=(2,)),)),
    ),
    "refinance of nothing": lambda: reopened(reason=Opened.REFINANCE),
    "before release": lambda: third(
        closed=(closing(FIRST.name, T0 + 1),), opened=(a_lease(3, 0, slots=(0,)),)
    ),
    "unknown budget": lambda: reopened(payer="team/other/west"),
    "unknown envelope": lambda: reopened(payer="team/money/north"),
    "over the cap": lambda: reopened(node="n2", slots=WIDE),
    "over the aggregate": lambda: (
        *third(opened=(a_lease(3, 0, node="n2", slots=WIDE, payer=EAST),)),
        at(4, opened=(a_lease(4, 0, slots=(4,)),)),
    ),
    "deleted budget": lambda: third(facts_budgets=(("team/money", None),), opened=(AFTER,)),
    "malformed budget": lambda: third(facts_budgets=(("team/money", canonical({"envelopes": 3})),)),
    "ending unknown": lambda: third(ending=(("nobody", "Shrink", T0),)),
    "ending twice": lambda: third(ending=((FIRST.name, "Shrink", T0),) * 2),
    "ending closed": lambda: (
        *third(closed=(closing(FIRST.name, T0),)),
        at(4, ending=((FIRST.name, "Shrink", T0),)),
    ),
    "ending for no reason": lambda: third(ending=((FIRST.name, "Whim", T0),)),
    "closed unknown": lambda: third(closed=(closing("nobody", T0),)),
    "closed twice": lambda: third(closed=(closing(FIRST.name, T0),) * 2),
    "end before start": lambda: third(closed=(closing(FIRST.name, T0 - 1),)),
    "end in the future": lambda: third(closed=(closing(FIRST.name, T0 + 2),)),
    "other reason": lambda: third(
        ending=((FIRST.name, "Shrink", T0),), closed=(closing(FIRST.name, T0),)
    ),
    "no reason": lambda: third(closed=(closing(FIRST.name, T0, "Whim"),)),
    "cause of success": lambda: third(closed=(closing(FIRST.name, T0, cause=Cause.EXIT),)),
    "resolution twice": lambda: third(resolutions=(("r-3", "00" * 32),) * 2),
}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("seq", "does not follow"),
        ("epoch", "is less than the epoch before"),
        ("instant", "is before the last batch"),
        ("opened twice", "was opened before"),
        ("another batch", "names another batch"),
        ("another run", "names another batch or run"),
        ("future start", "after the batch"),
        ("unknown node", "knows no node"),
        ("deleted node", "knows no node"),
        ("same slot", "is held by train-2-0"),
        ("no slots", "distinct ordinals"),
        ("slot twice", "distinct ordinals"),
        ("filler on active", "not a spare"),
        ("filler on free", "not a spare"),
        ("two fillers", "not a spare"),
        ("active on filler", "held by the filler"),
        ("refinance of nothing", "refinances no lease"),
        ("before release", "before"),
        ("unknown budget", "knows no Budget"),
        ("unknown envelope", "its cap is 0"),
        ("over the cap", "pays for 12 GPUs, its cap is 8"),
        ("over the aggregate", "pays for 13 GPUs, its cap is 12"),
        ("deleted budget", "its cap is 0"),
        ("malformed budget", "facts.budgets team/money"),
        ("ending unknown", "never opened"),
        ("ending twice", "marked ending before"),
        ("ending closed", "was closed in batch 3"),
        ("ending for no reason", "not a closure reason"),
        ("closed unknown", "never opened"),
        ("closed twice", "was closed in batch 3"),
        ("end before start", "is not in"),
        ("end in the future", "is not in"),
        ("other reason", "does not quote"),
        ("no reason", "not a closure reason"),
        ("cause of success", "a cause with"),
        ("resolution twice", "published before"),
    ],
)
def test_broken_rule_is_reported_with_its_batch(name: str, said: str) -> None:
    batches = BROKEN[name]()
    problem = verify_lines(lines_of(*batches))
    assert problem is not None
    assert said in str(problem)
    assert problem.seq == batches[-1].seq


def test_swap_under_an_overdrawn_envelope_verifies() -> None:
    """A cap that was lowered below open leases is an overdraft, not a fault of the next lease."""
    lowered = canonical({"envelopes": [{"name": "west", "concurrency": 1}]})
    swap = at(
        3,
        facts_budgets=(("team/money", lowered),),
        closed=(closing(FIRST.name, T0, "NodeFailure"), closing(SPARE.name, T0, "Swap")),
        opened=(a_lease(3, 0, slots=(2, 3), reason=Opened.SWAP, start=T0 + 1),),
    )
    assert verify_lines(lines_of(FACTS, OPEN, swap)) is None


def objects_of(lines: list[Wire]) -> list[Wire]:
    fold = Fold()
    for line in lines:
        assert fold.step(line) is None
    return [lease_to_wire(lease) for lease in fold.leases.values()]


def test_objects_that_agree_with_the_ledger_verify() -> None:
    lines = lines_of(*HONEST)
    assert verify_objects(lines, objects_of(lines), []) is None


def test_broken_ledger_is_reported_before_its_objects_are_checked() -> None:
    lines = lines_of(*HONEST)[1:]
    problem = verify_objects(lines, [], [])
    assert problem is not None
    assert problem.seq == 2


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"name": "train-9-9"}, "is in no batch"),
        ({"node": "n2"}, "node is 'n2'"),
        ({"ending": Ending(why=ClosureReason(reason=Closed.FAIL), deadline=T0)}, "ending is"),
    ],
)
def test_lease_object_that_differs_from_the_ledger_is_reported(
    changes: dict[str, object], said: str
) -> None:
    lines = lines_of(FACTS, OPEN)
    spare, first = (
        lease_to_wire(SPARE),
        lease_to_wire(msgspec.structs.replace(FIRST, **changes)),
    )
    problem = verify_objects(lines, [spare, first], [])
    assert problem is not None
    assert said in problem.why


def test_malformed_object_is_reported() -> None:
    problem = verify_objects([], [{"metadata": {"name": "l"}}], [])
    assert problem is not None
    assert problem.record == "Lease object l"
    problem = verify_objects([], [], [{"metadata": {"name": "r"}, "spec": {"cause": []}}])
    assert problem is not None
    assert problem.record == "Resolution object r"


def test_missing_lease_object_is_reported_unless_pending_or_archived() -> None:
    lines = lines_of(FACTS, OPEN, at(3, closed=(closing(SPARE.name, T0),)))
    first = [lease_to_wire(FIRST)]
    missing = verify_objects(lines, first, [])
    assert missing is not None
    assert missing.record == f"Lease {SPARE.name}"
    assert verify_objects(lines, first, [], materialised=2) is None
    closed = replace(
        SPARE, closed=Closure(why=ClosureReason(reason=Closed.COMPLETED), at=T0, batch=3)
    )
    charges = {SPARE.payer: Charges().with_leases([closed])}
    archived = Carried(seq=3, digest=str(lines[-1]["digest"]), charges=charges)
    assert verify_objects(lines, first, [], carried=archived) is None
    assert verify_objects(lines, [], [], carried=archived) is not None, "one missing lease is open"
    kept = Carried(seq=3, digest=archived.digest, kept=frozenset({SPARE.name}))
    assert verify_objects(lines, first, [], carried=kept) is not None


def test_checkpoint_is_compared_with_the_leases_it_summarizes() -> None:
    end = T0 + 5
    lines = lines_of(FACTS, OPEN, replace(at(3, closed=(closing(SPARE.name, end),)), instant=end))
    first, digest = [lease_to_wire(FIRST)], str(lines[-1]["digest"])
    closed = replace(
        SPARE, closed=Closure(why=ClosureReason(reason=Closed.COMPLETED), at=end, batch=3)
    )
    right = {SPARE.payer: Charges().with_leases([closed])}
    carried = Carried(seq=3, digest=digest, charges=right)
    assert verify_objects(lines, first, [], carried=carried) is None
    later = Closure(why=ClosureReason(reason=Closed.COMPLETED), at=end + 1, batch=3)
    longer = {SPARE.payer: Charges().with_leases([replace(SPARE, closed=later)])}
    for wrong in (
        Carried(seq=3, digest="0" * 64, charges=right),
        Carried(seq=4, digest=digest, charges=right),
        Carried(seq=3, digest=digest),
        Carried(seq=3, digest=digest, charges=longer),
    ):
        problem = verify_objects(lines, first, [], carried=wrong)
        assert problem is not None
        assert problem.record == "checkpoint"


def lottery_story(**changes: object) -> tuple[list[Wire], list[Wire]]:
    """Return lines and objects of a resolution in batch 2, drawn from what batch 1 announced."""
    resolution = a_resolution()
    drawn = resolution.lottery
    assert drawn is not None
    announce = Batch(
        seq=1, epoch=1, instant=T0, announced=((resolution.subject, drawn.commitment),)
    )
    digest = str(lines_of(announce)[0]["digest"])
    seed = lottery.seed(drawn.subject, drawn.instant, digest, drawn.nonce)
    draws = tuple(
        msgspec.structs.replace(drawn.draws[0], owner=owner, bundle=bundle.name, gpus=bundle.gpus)
        for owner, bundle in draw_order(seed, dict(drawn.conflict_set))
    )
    honest = {"seed": seed, "ledger_digest": digest, "announced_in": 1, "draws": draws}
    made = msgspec.structs.replace(
        resolution, lottery=msgspec.structs.replace(drawn, **{**honest, **changes})
    )
    publish = Batch(seq=2, epoch=1, instant=T0, resolutions=((made.name, resolution_digest(made)),))
    return lines_of(announce, publish), [resolution_to_wire(made)]


def test_resolution_that_follows_from_its_announcement_verifies() -> None:
    lines, objects = lottery_story()
    assert verify_objects(lines, [], objects) is None
    plain = msgspec.structs.replace(a_resolution(), lottery=None)
    publish = Batch(
        seq=1, epoch=1, instant=T0, resolutions=((plain.name, resolution_digest(plain)),)
    )
    assert verify_objects(lines_of(publish), [], [resolution_to_wire(plain)]) is None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"draws": ()}, "the lottery has no draws"),
        ({"nonce": "zz"}, "lower-case hex"),
        ({"announced_in": 2}, "did not announce"),
        ({"commitment": "00" * 32}, "commitment"),
        ({"seed": "00" * 32}, "seed"),
    ],
)
def test_forged_resolution_is_reported(changes: dict[str, object], said: str) -> None:
    lines, objects = lottery_story(**changes)
    problem = verify_objects(lines, [], objects)
    assert problem is not None
    assert said in problem.why


def test_resolution_drawn_from_another_digest_is_reported() -> None:
    lines, objects = lottery_story()
    publish = lines[1]["batch"]
    assert isinstance(publish, dict)
    resolution = a_resolution()
    assert resolution.lottery is not None
    digest = publish["resolutions"][0]["digest"]
    again = lines_of(
        Batch(
            seq=1,
            epoch=1,
            instant=T0 - 1,
            announced=((resolution.subject, resolution.lottery.commitment),),
        ),
        Batch(seq=2, epoch=1, instant=T0, resolutions=((resolution.name, digest),)),
    )
    problem = verify_objects(again, [], objects)
    assert problem is not None
    assert "ledgerDigest" in problem.why


def test_commitment_announced_in_the_batch_of_its_draw_is_refused() -> None:
    resolution = a_resolution()
    assert resolution.lottery is not None
    own = msgspec.structs.replace(
        resolution, lottery=msgspec.structs.replace(resolution.lottery, announced_in=1)
    )
    both = Batch(
        seq=1,
        epoch=1,
        instant=T0,
        announced=((own.subject, resolution.lottery.commitment),),
        resolutions=((own.name, resolution_digest(own)),),
    )
    problem = verify_objects(lines_of(both), [], [resolution_to_wire(own)])
    assert problem is not None
    assert "after it was drawn" in problem.why


def test_resolution_object_that_differs_or_is_missing_is_reported() -> None:
    lines, objects = lottery_story()
    spec = objects[0]["spec"]
    assert isinstance(spec, dict)
    for given, said in (
        ([{**objects[0], "spec": {**spec, "deficitGPUs": 17}}], "digest"),
        ([{**objects[0], "metadata": {"name": "other-7"}}], "is in no batch"),
        ([], "has no object"),
    ):
        problem = verify_objects(lines, [], given)
        assert problem is not None
        assert said in problem.why
    assert verify_objects(lines, [], [], materialised=1) is None


def test_refinance_lease_keeps_the_pod_of_the_lease_that_it_replaces() -> None:
    fold = Fold()
    for line in lines_of(*HONEST):
        fold.step(line)
    lease: Lease = fold.leases["fill-5-0"]
    assert lease.pod == FILLER.pod != ""


def test_outdated_object_is_accepted_until_its_batch_is_materialised() -> None:
    lines = lines_of(FACTS, OPEN, at(3, closed=(closing(SPARE.name, T0),)))
    behind = [lease_to_wire(FIRST), lease_to_wire(SPARE)]
    assert verify_objects(lines, behind, [], materialised=2) is None
    problem = verify_objects(lines, behind, [], materialised=3)
    assert problem is not None
    assert problem.record == f"Lease {SPARE.name}"


def test_too_deeply_nested_batch_is_reported() -> None:
    nested: Wire = {}
    for _ in range(100_000):
        nested = {"batch": nested}
    problem = Fold().step({"seq": 1, "batch": nested})
    assert problem is not None
    assert (problem.record, problem.why) == ("batch", "is nested too deep")


def test_resolution_with_two_objects_is_reported() -> None:
    lines, objects = lottery_story()
    problem = verify_objects(lines, [], [*objects, *objects])
    assert problem is not None
    assert problem.why == "has two objects"


@pytest.mark.parametrize("began", [T0, T0 + 2])
def test_began_outside_of_the_leases_interval_is_reported(began: int) -> None:
    over = msgspec.structs.replace(closing(FIRST.name, T0 + 1), began=began)
    wrong = verify_lines(lines_of(FACTS, OPEN, at(3, closed=(over,))))
    assert wrong is not None
    assert f"began {began} is not in ({T0}, {T0 + 1}]" in str(wrong)
    honest = msgspec.structs.replace(over, began=T0 + 1)
    assert verify_lines(lines_of(FACTS, OPEN, at(3, closed=(honest,)))) is None


@pytest.mark.parametrize(("began", "saved"), [(None, T0), (T0 + 1, T0 + 1), (None, T0 + 3)])
def test_saved_outside_of_begin_and_end_is_reported(began: int | None, saved: int) -> None:
    over = closing(FIRST.name, T0 + 2, "NodeFailure")
    wrong = msgspec.structs.replace(over, began=began, saved=saved)
    found = verify_lines(lines_of(FACTS, OPEN, at(3, opened=(FILLER,)), at(4, closed=(wrong,))))
    assert found is not None
    assert f"saved {saved} is not in" in str(found)
    honest = msgspec.structs.replace(over, began=T0 + 1, saved=T0 + 2)
    assert (
        verify_lines(lines_of(FACTS, OPEN, at(3, opened=(FILLER,)), at(4, closed=(honest,))))
        is None
    )
