"""Hours that suffice when less of a window is left, against asking at every end that is known."""

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.properties.worlds import (
    FLAVOR,
    NOW,
    a_budget,
    a_lease,
    a_node,
    a_run,
    a_wish,
    a_world,
    an_envelope,
)

from leasehold.core.admission.admit import admit
from leasehold.core.admission.forecast import forecast
from leasehold.core.calendar.entries import Calendar
from leasehold.core.calendar.outlook import Outlook
from leasehold.core.facts import Funding, Lending, Run, Selector
from leasehold.core.requests import StartRequest
from leasehold.core.units import HOUR, MINUTE
from leasehold.core.verdicts import Admitted, Refused
from leasehold.core.world.accounts import Claim
from leasehold.core.world.world import World

ends_of_strangers = st.lists(st.integers(1, 10 * 60), max_size=5, unique=True)  # minutes
PLANNED = "uid-planned"


def a_fleet(closes: int, hours: int, *, running: int, ends: list[int], lends: bool) -> World:
    """An envelope that closes, with leases of its own; and strangers elsewhere, who end."""
    cap = hours * HOUR
    lending = Lending(allow=True, to=("v",), max_gpu_ms=cap)
    envelope = an_envelope("n/t/e", "t", end=NOW + closes * HOUR, lending=lending)
    envelope = envelope if lends else replace(envelope, max_gpu_ms=cap)
    nodes = [a_node("n0"), a_node("n1", "b")]
    penniless = a_budget("v", an_envelope("n/v/e", "v", 0))
    world = a_world(nodes, [a_budget("t", envelope), a_budget("u"), penniless])
    runs = [(a_run("own", "t"), "n0", range(running))]
    runs += [
        (a_run(f"r{i}", "u", span=HOUR + minutes * MINUTE), "n1", range(i, i + 1))
        for i, minutes in enumerate(ends)
    ]
    for index, (run, node, slots) in enumerate(runs):
        world.put_run(run)
        if slots:
            world.fold_open(a_lease(run, node, slots, batch=1, index=index))
    return world


def a_run_of(owner: str, gpus: int, span: int | None) -> Run:
    """It goes where no stranger is; `v` has no money but what `t` lends it."""
    run = a_run("new", owner, group_gpus=gpus, pod_gpus=1, span=span, selector=Selector(domain="a"))
    funding = Funding(allow_borrow=True, sponsors=("t",)) if owner == "v" else Funding()
    return replace(run, spec=replace(run.spec, funding=funding))


def by_asking_at_every_end(world: World, wish: StartRequest, calendar: Calendar) -> int | None:
    ends = {term.frees_at for term in world.terms.values()}
    ends.update(claim.end for claims in calendar.claims.values() for claim in claims)
    for at in sorted(end for end in ends if NOW < end < NOW + 100 * HOUR):
        if isinstance(admit(world, wish, calendar, start=at, now=NOW), Admitted):
            return at
    return None


@given(
    closes=st.integers(1, 30),
    hours=st.integers(1, 40),
    running=st.integers(0, 3),
    ends=ends_of_strangers,
    gpus=st.integers(1, 5),
    span=st.sampled_from((None, HOUR, 4 * HOUR)),
    planned=st.sampled_from((0, 1, 7)),
    lends=st.booleans(),
)
@settings(max_examples=300)
def test_the_first_end_at_which_hours_suffice_is_that_of_asking_at_every_end(
    closes: int,
    hours: int,
    running: int,
    ends: list[int],
    gpus: int,
    span: int | None,
    planned: int,
    lends: bool,
) -> None:
    world = a_fleet(closes, hours, running=running, ends=ends, lends=lends)
    run = a_run_of("v" if lends else "t", gpus, span)
    world.put_run(run)
    calendar = Calendar()
    if planned:
        calendar.enter(
            PLANNED,
            claims=[Claim(uid=PLANNED, payer="n/t/e", start=NOW + planned // 7 * 45 * MINUTE,
                   end=NOW + planned * HOUR, gpus=1,
                   borrowed=lends, gpu_ms=planned * HOUR)],
        )  # fmt: skip
    wish = a_wish(world, run)
    refused = admit(world, wish, calendar, start=NOW, now=NOW)
    assume(isinstance(refused, Refused))
    assert isinstance(refused, Refused)
    outlook = Outlook(world, calendar, flavor=FLAVOR, gpus=1, now=NOW)
    found = forecast(world, wish, calendar, outlook=outlook, refused=refused, now=NOW)
    known = found.known
    assert (known.at if known else None) == by_asking_at_every_end(world, wish, calendar)
