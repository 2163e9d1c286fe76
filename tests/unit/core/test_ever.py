"""Whether a run could start if nothing else ran (Q11). The check changes nothing."""

from msgspec.structs import replace
from tests.properties.snapshots import snapshot
from tests.properties.worlds import (
    NOW,
    a_budget,
    a_lease,
    a_node,
    a_run,
    a_wish,
    a_world,
    an_envelope,
)

from leasehold.core.admission.possible import could_hold, never_fits, never_paid
from leasehold.core.facts import Closed, Closure, ClosureReason, Envelope, Gang, Run
from leasehold.core.units import HOUR
from leasehold.core.verdicts import Refusal, Refused
from leasehold.core.world.world import World


def paid_by(*envelopes: Envelope, clusters: str = "c") -> World:
    """Return two nodes of eight GPUs per cluster, and a Budget of these envelopes.

    The run `there` holds four GPUs and has used four GPU-hours.
    """
    nodes = [a_node(f"{c}{index}", cluster=c) for c in clusters for index in range(2)]
    world = a_world(nodes, [a_budget("t", *envelopes)])
    there = a_run("there")
    world.put_run(there)
    world.fold_open(a_lease(there, f"{clusters[0]}0", range(4), batch=1, index=0))
    return world


def never(world: World, run: Run) -> Refused | None:
    world.put_run(run)
    empty = world.accounts.emptied(NOW)
    return never_paid(world, a_wish(world, run), empty, now=NOW)


def envelope(gpus: int, **more: int | None) -> Envelope:
    return an_envelope("n/t/e", "t", gpus, **more)  # type: ignore[arg-type]


def test_never_paid_ignores_what_other_runs_use_now() -> None:
    assert never(paid_by(envelope(4)), a_run("r")) is None


def test_never_paid_refuses_run_larger_than_concurrency() -> None:
    refused = never(paid_by(envelope(7)), a_run("r", groups=2))
    assert refused is not None
    assert refused.reason is Refusal.CONCURRENCY


def test_never_paid_counts_used_gpu_hours_but_not_committed_ones() -> None:
    """Four of nine GPU-hours are used: the rest pays for four GPUs for one hour, not for two."""
    world = paid_by(envelope(8, max_gpu_ms=9 * HOUR))
    assert never(world, a_run("r", span=HOUR)) is None
    refused = never(world, a_run("r", span=2 * HOUR))
    assert refused is not None
    assert refused.reason is Refusal.GPU_HOURS


def test_never_paid_counts_future_windows_but_not_closed_ones() -> None:
    later = replace(envelope(8), start=NOW + HOUR)
    assert never(paid_by(later), a_run("r")) is None
    over = replace(envelope(8), end=NOW)
    assert never(paid_by(over), a_run("r")) is not None


def test_never_paid_funds_groups_of_a_sweep_one_after_another() -> None:
    assert never(paid_by(envelope(4)), a_run("r", groups=3, gang=Gang.GROUP)) is None
    assert never(paid_by(envelope(4)), a_run("r", groups=3)) is not None
    assert never(paid_by(envelope(3)), a_run("r", groups=3, gang=Gang.GROUP)) is not None


def test_groups_in_two_locations_are_funded_by_envelopes_of_each() -> None:
    """Each cluster holds four groups and has an envelope for three."""
    one, other = (
        replace(an_envelope(f"n/t/{cluster}", "t", 12), cluster=cluster) for cluster in "cd"
    )
    world = paid_by(one, other, clusters="cd")
    assert never(world, a_run("r", groups=6)) is None
    assert never(world, a_run("r", groups=7)) is not None
    assert never(world, a_run("r", groups=4, spread=False)) is not None


def test_never_paid_leaves_all_accounts_unchanged() -> None:
    """This includes the accounts of payers that never paid before."""
    world = paid_by(envelope(8, max_gpu_ms=9 * HOUR), an_envelope("n/t/f", "t", 8))
    before = snapshot(world, NOW)
    accounts = world.accounts
    payers = list(accounts.payers())
    for groups in (1, 2, 9):
        never(world, a_run("r", groups=groups))
        assert world.accounts is accounts
    world.drop_run("uid-r")
    assert snapshot(world, NOW) == before
    assert list(accounts.payers()) == payers
    assert (accounts.of("n/t/e").gpus, accounts.of("n/t/e").used_ms(NOW)) == (4, 4 * HOUR)
    assert not world.what_if.active


def test_emptied_accounts_keep_used_gpu_hours_but_no_open_leases() -> None:
    world = paid_by(envelope(8))
    empty = world.accounts.emptied(NOW)
    assert (empty.of("n/t/e").gpus, empty.of("n/t/e").used_ms(NOW)) == (0, 4 * HOUR)
    assert empty.of("n/t/e").used_ms(NOW + HOUR) == 4 * HOUR
    [name] = world.leases
    done = Closure(why=ClosureReason(reason=Closed.COMPLETED), at=NOW, batch=2)
    world.fold_close(name, done)
    assert world.accounts.of("n/t/e").used_ms(NOW + HOUR) == 4 * HOUR


def test_never_fits_counts_busy_cordoned_and_silent_nodes() -> None:
    world = paid_by(envelope(99))
    run = a_run("r", groups=4)
    world.put_node(replace(a_node("c1"), cordoned=True, ready=False))
    assert never_fits(world, a_wish(world, run)) is None
    too_wide = never_fits(world, a_wish(world, a_run("r", groups=5)))
    assert too_wide is not None
    assert (too_wide.reason, too_wide.short_by) == (Refusal.FLEET_TOO_SMALL, 4)
    assert too_wide.reason.is_for_good


def test_pod_too_large_for_any_node_is_reported_first() -> None:
    refused = never_fits(
        paid_by(envelope(99)), a_wish(paid_by(), a_run("r", group_gpus=9, pod_gpus=9))
    )
    assert refused is not None
    assert refused.reason is Refusal.POD_TOO_LARGE


def test_could_hold_counts_groups_that_fit_each_location_of_an_empty_fleet() -> None:
    world = paid_by(clusters="cd")
    world.put_node(a_node("d2", cluster="d"))
    both = {("r", "c"): 4, ("r", "d"): 6}
    assert could_hold(world, a_wish(world, a_run("r", groups=4))) == both
    together = a_run("r", groups=5, spread=False)
    assert could_hold(world, a_wish(world, together)) == {("r", "d"): 6}
    assert could_hold(world, a_wish(world, a_run("r", groups=7, spread=False))) == both
