"""The site of a start by preemption: the place with the least loss, its payers, and obstacles."""

from msgspec.structs import replace
from tests.properties.worlds import (
    NOW,
    a_budget,
    a_lease,
    a_node,
    a_run,
    a_wish,
    a_world,
    an_envelope,
    occupy,
)

from leasehold.core.calendar.entries import Calendar, Entry
from leasehold.core.facts import Closed, ClosureReason, Ending, Gang, Role, Run
from leasehold.core.policy import CutPolicy, Policy
from leasehold.core.preemption.site import NodeOffers, Site, choose_site, protections_ending
from leasehold.core.units import HOUR, MINUTE
from leasehold.core.world.accounts import Claim
from leasehold.core.world.world import World

OLD = NOW - 2 * HOUR  # old enough not to be protected any more
OPEN = Policy(min_tenure=0)


class Fleet:
    """Nodes n0, n1, … of eight GPUs in the given fabrics, with runs of other owners."""

    def __init__(self, fabrics: str, *, policy: Policy | None = None) -> None:
        nodes = [a_node(f"n{index}", fabric) for index, fabric in enumerate(fabrics)]
        self.world: World = a_world(nodes, [a_budget("x"), a_budget("z")], policy=policy)
        self._index = 0

    def put(
        self,
        run: Run,
        node: str,
        first: int,
        gpus: int,
        *,
        role: Role = Role.ACTIVE,
        group: int = 0,
        start: int = OLD,
    ) -> str:
        self.world.put_run(run)
        self._index += 1
        slots = range(first, first + gpus)
        lease = a_lease(
            run, node, slots, batch=1, index=self._index, group=group, role=role, start=start
        )
        self.world.fold_open(lease)
        return lease.name

    def fill(self, node: str, *, gpus: int = 8, start: int = OLD) -> Run:
        run = a_run(f"on-{node}", "x", group_gpus=gpus, pod_gpus=gpus)
        self.put(run, node, 0, gpus, start=start)
        return run

    def site(
        self, run: Run, calendar: Calendar | None = None, *, at: int = NOW, within: str = ""
    ) -> Site | None:
        self.world.put_run(run)
        request = a_wish(self.world, run)
        domains = (f"r/c/{within}",) if within else ()
        return choose_site(
            self.world, request, calendar or Calendar(), at=at, now=NOW, within=domains
        )

    def places(self, run: Run, calendar: Calendar | None = None, *, at: int = NOW) -> object:
        found = self.site(run, calendar, at=at)
        return None if found is None else found.places


def a_beneficiary(groups: int = 1, gpus: int = 8, *, spread: bool = True) -> Run:
    return a_run("new", "z", groups=groups, group_gpus=gpus, pod_gpus=gpus, spread=spread)


def test_site_prefers_spares_then_shrinking_then_lottery() -> None:
    """Domain a costs a run, b costs a group above the minimum, c costs spares.

    On d the rest of the elastic run is protected.
    """
    fleet = Fleet("abcd")
    fleet.fill("n0")
    elastic = a_run("elastic", "x", groups=2, group_gpus=8, pod_gpus=8, minimum=8)
    fleet.put(elastic, "n1", 0, 8, group=1, start=NOW)
    fleet.put(elastic, "n3", 0, 8, group=0, start=NOW)
    holder = a_run("holder", "x", group_gpus=8, pod_gpus=8, spares=8)
    fleet.put(holder, "n2", 0, 8, role=Role.SPARE)
    found = fleet.site(a_beneficiary())
    assert found is not None
    assert found.losses == (("r/c/a", 8, 0, 0), ("r/c/b", 0, 8, 0), ("r/c/c", 0, 0, 8))
    assert (found.domains, found.places) == (("r/c/c",), (("n2", 8),))
    assert [(each.payer, each.gpus) for each in found.money] == [("n/z/e", 8)]


def test_loss_on_a_node_counts_only_gpus_that_are_not_free_already() -> None:
    fleet = Fleet("aa")
    fleet.fill("n0", gpus=6)
    fleet.fill("n1", gpus=5)
    found = fleet.site(a_beneficiary(gpus=4))
    assert found is not None
    assert found.losses == (("r/c/a", 1, 0, 0),)
    assert found.places == (("n1", 4),)


def test_nodes_with_equal_losses_are_chosen_by_name() -> None:
    fleet = Fleet("baa")
    for node in ("n0", "n1", "n2"):
        fleet.fill(node)
    assert fleet.places(a_beneficiary()) == (("n1", 8),)


def test_groups_of_one_run_get_different_gpus() -> None:
    """GPUs that the first group takes are not available to the second."""
    fleet = Fleet("ab")
    fleet.fill("n0", gpus=4)
    fleet.fill("n1", gpus=6)
    assert fleet.places(a_beneficiary(2, 4)) == (("n0", 4), ("n1", 4))
    assert fleet.places(a_beneficiary(2, 4, spread=False)) == (("n0", 8),)
    assert fleet.places(a_beneficiary(5, 4)) is None


def test_protected_run_blocks_site_until_its_protection_ends() -> None:
    fleet = Fleet("a")
    fleet.fill("n0", start=NOW - HOUR)
    assert fleet.places(a_beneficiary()) is None
    assert fleet.places(a_beneficiary(), at=NOW + HOUR - 1) is None
    assert fleet.places(a_beneficiary(), at=NOW + HOUR) == (("n0", 8),)


def test_protected_run_may_be_shrunk_and_its_spares_dropped() -> None:
    fleet = Fleet("ab")
    elastic = a_run("elastic", "x", groups=2, group_gpus=4, pod_gpus=4, minimum=4)
    for group in range(2):
        fleet.put(elastic, "n0", 4 * group, 4, group=group, start=NOW)
    holder = a_run("holder", "x", group_gpus=4, pod_gpus=4, spares=4)
    fleet.put(holder, "n1", 0, 4, start=NOW)
    fleet.put(holder, "n1", 4, 4, role=Role.SPARE, start=NOW)
    found = fleet.site(a_beneficiary(2, 4))
    assert found is not None
    assert found.losses == (("r/c/a", 0, 4, 0), ("r/c/b", 0, 0, 4))
    assert found.places == (("n0", 4), ("n1", 4))


def test_filler_on_a_dropped_spare_adds_no_loss() -> None:
    fleet = Fleet("a")
    holder = a_run("holder", "x", group_gpus=8, pod_gpus=8, spares=8)
    fleet.put(holder, "n0", 0, 8, role=Role.SPARE)
    fleet.put(a_run("filler", "x", group_gpus=4), "n0", 0, 4, role=Role.BORROWED, start=NOW)
    found = fleet.site(a_beneficiary())
    assert found is not None
    assert found.losses == (("r/c/a", 0, 0, 8),)


def test_ending_lease_is_free_until_its_deadline_and_blocks_after_it() -> None:
    fleet = Fleet("a")
    run = fleet.fill("n0", start=NOW)
    [name] = fleet.world.open_by_run[run.uid]
    ending = Ending(why=ClosureReason(reason=Closed.SHRINK), deadline=NOW + MINUTE, batch=2, at=NOW)
    fleet.world.fold_ending(name, ending)
    found = fleet.site(a_beneficiary())
    assert found is not None
    assert found.losses == (("r/c/a", 0, 0, 0),)
    late = choose_site(
        fleet.world, a_wish(fleet.world, a_beneficiary()), Calendar(), at=NOW + HOUR,
        now=NOW + MINUTE,
    )  # fmt: skip
    assert late is None


def test_lease_that_ends_by_itself_before_the_start_adds_no_loss() -> None:
    fleet = Fleet("a", policy=OPEN)
    run = a_run("short", "x", group_gpus=8, pod_gpus=8, span=3 * HOUR)
    fleet.put(run, "n0", 0, 8)
    later = fleet.site(a_beneficiary(), at=NOW + HOUR)
    sooner = fleet.site(a_beneficiary(), at=NOW + HOUR - 1)
    assert later is not None
    assert sooner is not None
    assert (later.losses, sooner.losses) == ((("r/c/a", 0, 0, 0),), (("r/c/a", 8, 0, 0),))


def test_site_avoids_foreign_pods_and_cordoned_nodes() -> None:
    fleet = Fleet("aa")
    occupy(fleet.world, "n0", 1)
    fleet.world.put_node(replace(a_node("n1", "a"), cordoned=True))
    assert fleet.places(a_beneficiary()) is None
    assert fleet.places(a_beneficiary(gpus=4)) == (("n0", 4),)


def an_entry(gpus: int, *, start: int) -> Calendar:
    calendar = Calendar()
    calendar.enter("ahead", [Entry(uid="ahead", node="n0", gpus=gpus, start=start)])
    return calendar


def test_site_avoids_node_planned_for_an_earlier_run_even_if_that_starts_later() -> None:
    """Without a limit, the run would still be there when the plan begins."""
    fleet = Fleet("ab")
    fleet.fill("n0")
    fleet.fill("n1")
    assert fleet.places(a_beneficiary()) == (("n0", 8),)
    assert fleet.places(a_beneficiary(), an_entry(4, start=NOW + 9 * HOUR)) == (("n1", 8),)
    short = replace(a_beneficiary(), spec=replace(a_beneficiary().spec, max_duration=8 * HOUR))
    assert fleet.places(short, an_entry(4, start=NOW + 9 * HOUR)) == (("n0", 8),)


def test_budget_of_the_victims_does_not_count_as_free_for_the_site() -> None:
    """The victim is paid by the beneficiary's own envelope, which is not counted as freed (Q5)."""
    fleet = Fleet("a")
    fleet.world.put_budget(a_budget("z", an_envelope("n/z/e", "z", 8)))
    run = a_run("victim", "z", group_gpus=8, pod_gpus=8)
    name = fleet.put(run, "n0", 0, 8)
    request = a_wish(fleet.world, a_beneficiary())
    fleet.world.put_run(request.run)
    assert choose_site(fleet.world, request, Calendar(), at=NOW, now=NOW) is None
    returned = choose_site(fleet.world, request, Calendar(), at=NOW, now=NOW, returned=(name,))
    assert returned is not None, "the victim's family gives it back (O5)"


def test_budget_claimed_by_an_earlier_runs_plan_does_not_pay_for_a_site() -> None:
    fleet = Fleet("a")
    fleet.world.put_budget(a_budget("z", an_envelope("n/z/e", "z", 8)))
    fleet.fill("n0")
    calendar = Calendar()
    claim = Claim(
        uid="ahead", payer="n/z/e", start=NOW, end=NOW + HOUR, gpus=1, borrowed=False, gpu_ms=HOUR
    )
    calendar.enter("ahead", claims=[claim])
    assert fleet.places(a_beneficiary(), calendar) is None
    assert fleet.places(a_beneficiary(), calendar, at=NOW + HOUR) == (("n0", 8),)


def test_payer_windows_must_stay_open_until_the_starts_protection_ends() -> None:
    """A start protects for two hours, or for twice the run's checkpoint interval (Q5)."""
    fleet = Fleet("a")
    fleet.fill("n0")
    run = a_beneficiary()
    with_checkpoint = replace(run, spec=replace(run.spec, checkpoint=2 * HOUR))
    for hours, is_enough in ((2, False), (3, True)):
        end = NOW + hours * HOUR
        fleet.world.put_budget(a_budget("z", an_envelope("n/z/e", "z", 8, end=end)))
        assert (fleet.places(run) is not None) is is_enough
        assert fleet.places(with_checkpoint) is None
    fleet.world.put_budget(a_budget("z", an_envelope("n/z/e", "z", 8, end=NOW + 5 * HOUR)))
    assert fleet.places(with_checkpoint) is not None


def test_site_within_given_domains_ignores_other_domains() -> None:
    fleet = Fleet("ab")
    fleet.fill("n0")
    found = fleet.site(a_beneficiary(), within="a")
    assert found is not None
    assert (found.domains, [each[0] for each in found.losses]) == (("r/c/a",), ["r/c/a"])


def test_site_holds_only_while_its_gpus_can_be_freed() -> None:
    fleet = Fleet("a")
    fleet.fill("n0")
    run = a_beneficiary()
    fleet.world.put_run(run)
    request = a_wish(fleet.world, run)
    places = (("n0", 8),)

    def holds(calendar: Calendar, *, at: int = NOW) -> bool:
        return NodeOffers(fleet.world, request, calendar, at=at, now=NOW).holds(places)

    assert holds(Calendar())
    assert not holds(an_entry(1, start=NOW))
    assert not holds(an_entry(1, start=NOW + HOUR))
    occupy(fleet.world, "n0", 1)
    assert not holds(Calendar())
    fleet.world.drop_node("n0")
    assert not holds(Calendar())


def test_without_a_lottery_site_may_include_protected_leases() -> None:
    """With `Reclaim` and `Never`, a site is kept until it comes free, so all leases count (Q10)."""
    for cuts in (CutPolicy.RECLAIM, CutPolicy.NEVER):
        fleet = Fleet("a", policy=Policy(cuts=cuts))
        fleet.fill("n0", start=NOW)
        assert fleet.places(a_beneficiary()) == (("n0", 8),)


def test_protections_ending_lists_when_protections_will_end() -> None:
    fleet = Fleet("abc")
    fleet.fill("n0", start=NOW - HOUR)
    fleet.fill("n1", start=NOW - 3 * HOUR)
    patient = a_run("patient", "x", group_gpus=8, pod_gpus=8, gang=Gang.RUN)
    patient = replace(patient, spec=replace(patient.spec, checkpoint=5 * HOUR))
    fleet.put(patient, "n2", 0, 8, start=NOW)
    assert sorted(protections_ending(fleet.world, NOW)) == [NOW + HOUR, NOW + 10 * HOUR]
    assert sorted(protections_ending(fleet.world, NOW + HOUR)) == [NOW + 10 * HOUR]


def test_choosing_a_site_changes_nothing() -> None:
    fleet = Fleet("ab")
    fleet.fill("n0")
    before = {name: state.free for name, state in fleet.world.fleet.nodes.items()}
    fleet.site(a_beneficiary(), an_entry(8, start=NOW))
    assert {name: state.free for name, state in fleet.world.fleet.nodes.items()} == before
    assert fleet.world.accounts.claims_on("n/z/e") == []
    assert not fleet.world.what_if.active
