"""What a lottery draws from after each draw: recounted bundles (R4), and ownedLast (Q10)."""

from msgspec.structs import replace
from tests.unit.test_lottery import a_bundle, a_resolution

from leasehold.core.ledger import lottery
from leasehold.core.ledger.lottery import Urn
from leasehold.core.objects.resolution import resolution_from_wire, resolution_to_wire
from leasehold.core.resolutions import Bundle, Draw, Resolution, SweepWidth

SEED = "5e" * 32
SWEEP = SweepWidth(run="y/sweep", width=40, minimum=16, group=8)  # five groups; three may be cut
GROUPS = [a_bundle(f"y/sweep#{group}") for group in range(5)]


def names(urn: Urn) -> dict[str, list[tuple[str, int]]]:
    return {o: [(each.name, each.gpus) for each in found] for o, found in urn.choices().items()}


def test_a_sweep_at_its_minimum_is_one_bundle() -> None:
    """40 GPUs less three groups are 16, the minimum: the rest of the sweep is drawn as a whole."""
    urn = Urn({"y": GROUPS}, [SWEEP])
    urn.take("y", GROUPS[1])
    urn.take("y", GROUPS[4])
    assert names(urn) == {"y": [("y/sweep#0", 8), ("y/sweep#2", 8), ("y/sweep#3", 8)]}
    urn.take("y", GROUPS[0])
    assert names(urn) == {"y": [("y/sweep", 16)]}
    [whole] = urn.choices()["y"]
    urn.take("y", whole)
    assert names(urn) == {}


def test_groups_outside_the_scope_are_not_drawn_but_count_for_the_width() -> None:
    """Two of five groups are in the scope: both may be drawn before the sweep is at its minimum."""
    urn = Urn({"y": GROUPS[:2]}, [SWEEP])
    urn.take("y", GROUPS[0])
    assert names(urn) == {"y": [("y/sweep#1", 8)]}
    urn.take("y", GROUPS[1])
    assert names(urn) == {}


def test_last_bundle_of_a_sweep_includes_groups_outside_the_scope() -> None:
    urn = Urn({"y": GROUPS[:4]}, [SWEEP])
    for each in GROUPS[:3]:
        urn.take("y", each)
    assert names(urn) == {"y": [("y/sweep", 16)]}


def test_drawing_from_one_sweep_does_not_change_the_bundles_of_another() -> None:
    other = [a_bundle(f"y/other#{group}") for group in range(2)]
    widths = [SWEEP, SweepWidth(run="y/other", width=24, minimum=8, group=8)]
    urn = Urn({"y": [*GROUPS, *other], "z": [a_bundle("z/run")]}, widths)
    for each in GROUPS[:3]:
        urn.take("y", each)
    assert names(urn) == {
        "y": [("y/other#0", 8), ("y/other#1", 8), ("y/sweep", 16)],
        "z": [("z/run", 8)],
    }


def test_record_without_widths_has_one_bundle_per_group() -> None:
    """Lotteries were recorded like this before sweeps were recounted."""
    urn = Urn({"y": GROUPS})
    for each in GROUPS:
        urn.take("y", each)
    assert names(urn) == {}


def owned(name: str) -> Bundle:
    return replace(a_bundle(name), is_owned=True)


def test_bundles_paid_only_by_their_owner_are_drawn_last() -> None:
    conflict = {"x": [owned("x/own")], "y": [owned("y/own"), a_bundle("y/shared")]}
    urn = Urn(conflict, owned_last=True)
    assert names(urn) == {"y": [("y/shared", 8)]}
    urn.take("y", conflict["y"][1])
    assert names(urn) == {"x": [("x/own", 8)], "y": [("y/own", 8)]}
    assert names(Urn(conflict)) == {"x": [("x/own", 8)], "y": [("y/own", 8), ("y/shared", 8)]}


def test_sweep_counts_as_paid_by_its_owner_only_if_every_group_is() -> None:
    shared, mine = a_bundle("y/sweep#0"), [owned(f"y/sweep#{group}") for group in range(1, 5)]
    urn = Urn({"x": [owned("x/own")], "y": [shared, *mine]}, [SWEEP], owned_last=True)
    for each in (shared, *mine[:2]):
        urn.take("y", each)
    assert names(urn) == {"x": [("x/own", 8)], "y": [("y/sweep", 16)]}
    borrowed = Urn({"x": [owned("x/own")], "y": [shared, *mine]}, [SWEEP], owned_last=True)
    for each in mine[:3]:
        borrowed.take("y", each)
    assert names(borrowed) == {"y": [("y/sweep", 16)]}


def test_copy_of_an_urn_draws_the_same_bundles_as_the_urn() -> None:
    urn = Urn({"y": GROUPS, "z": [a_bundle("z/run"), a_bundle("z/walk")]}, [SWEEP])
    urn.draw(SEED)
    before, copy = names(urn), urn.copy()
    drawn = [copy.draw(SEED) for _ in range(4)]
    assert names(urn) == before
    assert [urn.draw(SEED) for _ in range(4)] == drawn


def a_sweep_resolution() -> Resolution:
    """Return a resolution that drew from five groups until nothing was left."""
    made = a_resolution()
    assert made.lottery is not None
    urn, found = Urn({"y": GROUPS}, [SWEEP]), []
    while (drawn := urn.draw(made.lottery.seed)) is not None:
        found.append(Draw(owner=drawn[0], bundle=drawn[1].name, gpus=drawn[1].gpus))
    conflict = (("y", tuple(replace(each, uid="") for each in GROUPS)),)
    return replace(
        made,
        lottery=replace(made.lottery, conflict_set=conflict, sweeps=(SWEEP,), draws=tuple(found)),
    )


def test_resolution_replays_only_with_the_widths_it_records() -> None:
    made = a_sweep_resolution()
    assert made.lottery is not None
    assert len(made.lottery.draws) == 4, "three groups, and the rest as one bundle"
    assert lottery.replay(made) == []
    forged = replace(made.lottery, sweeps=(replace(SWEEP, minimum=8),))
    [problem] = lottery.replay(replace(made, lottery=forged))
    assert problem.startswith("draws[3]")
    unnamed = replace(made.lottery, sweeps=())
    [problem] = lottery.replay(replace(made, lottery=unnamed))
    assert problem.startswith("draws[3]")


def test_resolution_without_widths_reads_back_and_replays() -> None:
    """Older ledgers have neither `sweeps` nor `ownedLast`."""
    wire = resolution_to_wire(a_resolution())
    assert not {"sweeps", "ownedLast"} & set(wire["spec"]["lottery"])  # type: ignore[index]
    read = resolution_from_wire(wire)
    assert read.lottery is not None
    assert (read.lottery.sweeps, read.lottery.owned_last) == ((), False)
    assert lottery.replay(read) == []


def test_sweep_widths_and_owned_last_setting_survive_a_round_trip() -> None:
    made = a_sweep_resolution()
    assert made.lottery is not None
    mine = (("y", tuple(replace(each, is_owned=True) for each in made.lottery.conflict_set[0][1])),)
    made = replace(made, lottery=replace(made.lottery, owned_last=True, conflict_set=mine))
    read = resolution_from_wire(resolution_to_wire(made))
    assert read.lottery == made.lottery
    assert lottery.replay(read) == []
