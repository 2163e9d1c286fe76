"""The questions people ask are answered with exactly these lines."""

from msgspec.structs import replace
from tests.properties.worlds import NOW, a_budget, a_lease, a_node, a_run, a_world, an_envelope
from tests.unit.shell.plant import Plant

from leasehold.control.views.answers import budgets, cover_lines, explain, leases, who_pays
from leasehold.core.facts import Closed, Closure, ClosureReason, Ending, Lending, Relation
from leasehold.core.reservations import Reservation, State
from leasehold.core.resolutions import CutCause, Resolution
from leasehold.core.units import HOUR, MINUTE, plural
from leasehold.core.verdicts import CoverStep, Refusal, Refused
from leasehold.core.world.world import World

SUBJECT = "n/t/e"
OPENED = "1970-01-05T03:00:00.000Z"  # an hour before NOW


def a_crowded_plant() -> Plant:
    """Return a plant whose one node a/one has used for an hour when z/two is submitted."""
    plant = Plant(nodes=1, owners="az")
    plant.submit("a/one")
    plant.wait(HOUR)
    plant.submit("z/two")
    plant.wait(0)
    return plant


def explained(plant: Plant, key: str) -> list[str]:
    return explain(plant.world, plant.world.uid_of[key], plant.kernel.now)


def test_explanation_of_waiting_run_names_shortage_plan_and_lottery_odds() -> None:
    assert explained(a_crowded_plant(), "z/two") == [
        "z/two: Pending (InsufficientCapacity): fewer than 8 GPUs are free; wait for leases to "
        "end; planned for 2027-01-15T09:15:00.000Z if necessary by preempting other runs",
        "  requested 8 GPUs, short of 8; waiting may help",
        "  reservation two-2 is Pending, starts 2027-01-15T09:15:00.000Z, needs-cuts, "
        "deficit 8 GPUs",
        "  8 GPUs would be taken by lottery",
        "  a/one has a chance of 100 % to be drawn",
        "  walked z/z/e Owned: 8",
    ]


def test_explanation_uses_singular_for_one_gpu() -> None:
    plant = Plant(nodes=1, owners="az")
    plant.submit("a/one")
    plant.wait(HOUR)
    plant.submit("z/two", resources={"gpuType": "H", "totalGPUs": 1, "gpusPerPod": 1})
    plant.wait(0)
    first, second, third, *_ = explained(plant, "z/two")
    assert "no GPU is free;" in first
    assert second == "  requested 1 GPU, short of 1; waiting may help"
    assert third.endswith("deficit 1 GPU")
    assert [plural(count, "GPU") for count in (0, 1, "1", 11)] == [
        "0 GPUs", "1 GPU", "1 GPU", "11 GPUs",
    ]  # fmt: skip


def test_explanation_of_drawn_run_names_the_draw_and_the_beneficiary() -> None:
    plant = a_crowded_plant()
    plant.wait(15 * MINUTE)
    (resolution,) = plant.world.resolutions.values()
    assert resolution.lottery is not None
    assert explained(plant, "a/one") == [
        "a/one: Failed (RandomPreempt): drawn in a lottery; `explain` shows the draw and which "
        "run it was for",
        "  walked a/a/e Owned: 8",
        "  cut by two-2-3 at 2027-01-15T09:15:00.000Z: 8 GPUs (RandomPreempt) for z/two",
        f"    the lottery had t:a with 1 bundles; seed {resolution.lottery.seed}",
        "    drew a/one of t:a",
    ]
    assert explained(plant, "z/two") == [
        "z/two: Running (Running): 8 GPUs bound",
        "  walked z/z/e Owned: 8",
        "  group 0 on n0",
    ]


def test_explanation_of_blocked_reservation_gives_reason_instead_of_start() -> None:
    world = a_world([a_node("n0")], [a_budget("t")])
    run = a_run("r")
    world.put_run(run)
    world.memory.refusals[run.uid] = Refused(
        reason=Refusal.NO_ENVELOPE, remedy="add an envelope", asked=4, short_by=3
    )
    world.fold_reservation(
        Reservation(namespace="n", name="r-1", run="r", uid=run.uid, batch=1, announced=NOW,
                    state=State.BLOCKED, commitment="", message="add an envelope")
    )  # fmt: skip
    assert explain(world, run.uid, NOW) == [
        "n/r: Pending (NoEnvelope): add an envelope; its reservation is Blocked",
        "  requested 4 GPUs, short of 3; it cannot start without a change",
        "  reservation r-1 is Blocked: add an envelope",
    ]


def test_cover_lines_show_what_each_envelope_gave_or_why_it_gave_no_more() -> None:
    world = a_world([])
    world.memory.traces["u"] = (
        CoverStep(
            envelope="n/t/e", relation=Relation.OWNED, taken=4, held_back=Refusal.CONCURRENCY
        ),
        CoverStep(
            envelope="n/s/e", relation=Relation.BORROWED, taken=0, held_back=Refusal.ACL_DENIED
        ),
        CoverStep(envelope="n/z/e", relation=Relation.BORROWED, taken=2),
    )
    assert cover_lines(world, "u") == [
        "n/t/e Owned: 4 (then ConcurrencyExhausted)",
        "n/s/e Borrowed: ACLDenied",
        "n/z/e Borrowed: 2",
    ]
    assert cover_lines(world, "nobody") == []


def a_world_of_two_payers() -> World:
    """Return a World with a run of two groups; the payer of one group lends more than its cap."""
    capped = an_envelope(SUBJECT, "t", 8, end=NOW + 10 * HOUR, max_gpu_ms=100 * HOUR)
    lender = an_envelope("n/s/e", "s", 2, lending=Lending(allow=True, to=("*",)))
    world = a_world([a_node("n0"), a_node("n1")], [a_budget("t", capped), a_budget("s", lender)])
    run = a_run("r", groups=2, span=5 * HOUR, minimum=4)
    world.put_run(run)
    own = a_lease(run, "n0", range(4), batch=1, index=0)
    lent = a_lease(run, "n1", range(4), batch=1, index=1, group=1, payer="n/s/e",
                   relation=Relation.BORROWED)  # fmt: skip
    world.fold_open(own)
    world.fold_open(lent)
    return world


def test_who_pays_lists_each_payer_with_its_gpus_and_hours() -> None:
    assert who_pays(a_world_of_two_payers(), "uid-r", NOW) == [
        "n/r",
        "  payer  relation  GPUs  GPU-hours",
        "  n/s/e  Borrowed  4     4",
        "  n/t/e  Owned     4     4",
    ]


def test_who_pays_still_lists_payers_of_a_deleted_run_under_its_uid() -> None:
    world = a_world_of_two_payers()
    for name in ("r-1-0", "r-1-1"):
        world.fold_close(name, Closure(why=ClosureReason(reason=Closed.COMPLETED), at=NOW, batch=2))
    world.drop_run("uid-r")
    assert who_pays(world, "uid-r", NOW + HOUR) == [
        "uid-r",
        "  payer  relation  GPUs  GPU-hours",
        "  n/s/e  Borrowed  0     4",
        "  n/t/e  Owned     0     4",
    ]
    assert explain(world, "uid-r", NOW + HOUR)[0].startswith("uid-r: ")


def test_leases_are_listed_in_ledger_order_and_by_node_or_payer() -> None:
    world = a_world_of_two_payers()
    head = "  lease  run      where        role    payer  from                      to  opened  "
    first = f"  r-1-0  n/r#0.0  n0[0,1,2,3]  Active  n/t/e  {OPENED}  -   Start   -"
    second = f"  r-1-1  n/r#1.0  n1[0,1,2,3]  Active  n/s/e  {OPENED}  -   Start   -"
    top = ["as of 1970-01-05T04:00:00.000Z", head + "ended"]
    assert leases(world, NOW) == [*top, first, second]
    assert leases(world, NOW, node="n0") == [*top, first]
    assert leases(world, NOW, payer="n/s/e") == [*top, second]
    assert len(leases(world, NOW, node="n0", payer="n/s/e")) == len(top)


def test_closed_lease_is_listed_with_its_end_and_reason() -> None:
    world = a_world_of_two_payers()
    world.fold_close("r-1-0", Closure(why=ClosureReason(reason=Closed.COMPLETED), at=NOW, batch=2))
    assert leases(world, NOW, node="n0")[2].split() == [
        "r-1-0", "n/r#0.0", "n0[0,1,2,3]", "Active", "n/t/e", OPENED, "1970-01-05T04:00:00.000Z",
        "Start", "Completed",
    ]  # fmt: skip


def test_budgets_show_used_lent_left_and_overdrawn_amounts() -> None:
    rows = [line.split() for line in budgets(a_world_of_two_payers(), NOW)]
    assert rows == [
        ["envelope", "used", "of", "lent", "hours", "committed", "left", "until", "overdrawn"],
        ["n/s/e", "4", "2", "4", "4", "16", "-", "-", "2"],
        ["n/t/e", "4", "8", "0", "4", "16", "80", "1970-01-05T14:00:00.000Z", "-"],
    ]


def test_explanation_of_shrunk_run_names_the_overdrawn_payer() -> None:
    world = a_world_of_two_payers()
    world.fold_resolution(
        Resolution(name="e-2", batch=2, cause=CutCause.OVERDRAFT, subject="n/s/e", beneficiary="",
                   beneficiary_uid="", flavor="", domains=(), envelope="n/s/e", instant=NOW,
                   deficit=2, shrunk=(("n/r", 1, 4),), victims=("r-1-1",))
    )  # fmt: skip
    ending = Ending(why=ClosureReason(reason=Closed.SHRINK), deadline=NOW + MINUTE)
    world.fold_ending("r-1-1", ending)
    assert explain(world, "uid-r", NOW)[1:] == [
        "  group 0 on n0",
        "  group 1 on n1",
        f"  cut by e-2 at 1970-01-05T04:00:00.000Z: 4 GPUs ({Closed.SHRINK}) for the caps of n/s/e",
    ]


def test_explanation_names_every_node_of_each_group() -> None:
    world = a_world_of_two_payers()
    more = a_lease(world.runs["uid-r"], "n1", [4], batch=2, index=0, pod=1)
    world.fold_open(replace(more, group=0))
    assert explain(world, "uid-r", NOW)[1:] == ["  group 0 on n0, n1", "  group 1 on n1"]
