"""Standing plans (Q7): which waiting runs need not be considered in this walk.

The verdict on a waiting run is kept together with what it depends on:

- the nodes of its plan,
- the envelopes that were asked to pay,
- the instant `before` which more free GPUs could give the run a better plan.

A walk asks `StandingPlans` for each run in order. The verdict stands unless a change concerns one
of these. The result is the same as if every run were considered. A strict turn checks that: it
considers every run and compares.

Example: a run is planned on node n3 for 14:00. A lease ends on n7 at 12:00. If a whole group could
run on n7's domain before 14:00, the run is considered again; otherwise its plan stands.
"""

from msgspec.structs import replace

from leasehold.control.reservations import present
from leasehold.control.scheduling.consider import InQueue, Planned, Verdict
from leasehold.control.scheduling.plans import Plan
from leasehold.control.scheduling.queue_pass import QueuePass
from leasehold.control.turn import Turn
from leasehold.core.calendar.entries import Entry
from leasehold.core.calendar.outlook import NOW
from leasehold.core.facts import EnvelopeKey, Gang, Location, Run, Uid
from leasehold.core.funding.hours import has_ample_hours
from leasehold.core.policy import Policy
from leasehold.core.requests import StartRequest
from leasehold.core.reservations import Reservation, State
from leasehold.core.units import FOREVER, Instant
from leasehold.core.world.accounts import Claim
from leasehold.core.world.journal import Changes
from leasehold.core.world.waiting import wait_of
from leasehold.core.world.width import locations_for
from leasehold.core.world.world import World

Domain = tuple[str, str]  # flavor and domain
Lines = tuple[tuple[Entry, ...], tuple[Claim, ...]]  # the entries and claims of one run
_NO_LINES: Lines = ((), ())


class StandingPlan:
    """The verdict on a run in an earlier walk, and everything that the verdict depends on."""

    __slots__ = (
        "before",
        "lines",
        "locations",
        "nodes",
        "payers",
        "request",
        "reservation",
        "run",
        "seen",
        "until",
        "verdict",
    )

    def __init__(
        self,
        run: Run,
        verdict: Planned | InQueue,
        request: StartRequest,
        *,
        lines: Lines,
        payers: frozenset[EnvelopeKey],
        locations: frozenset[Location],
        reservation: Reservation | None,
        before: Instant | None,
        until: Instant,
        seen: int,
    ) -> None:
        """Keep the verdict on `run`.

        `lines`: the run's entries and claims on the calendar.
        `payers`: envelopes whose changes concern the run.
        `locations`: where the run may be placed.
        `before`: GPUs that come free before this instant concern the run. `NOW`: only GPUs that are
        free at present concern it. None: no free GPUs concern it.
        `until`: from this instant on the run must be considered even if nothing has changed.
        `seen`: the number of the newest change that the verdict takes into account.
        """
        self.run = run
        self.verdict = verdict
        self.request = request
        self.lines = lines
        self.nodes = frozenset(entry.node for entry in lines[0])
        self.payers = payers | {claim.payer for claim in lines[1]}
        self.locations = locations
        self.reservation = reservation
        self.before = before
        self.until = until
        self.seen = seen


class _ChangeNumbers:
    """For each node, domain and envelope, the number of its newest change."""

    def __init__(self) -> None:
        self.nodes: dict[str, int] = {}
        self.domains: dict[Domain, int] = {}
        self.payers: dict[EnvelopeKey, int] = {}

    def clear(self, up_to: int) -> None:
        """Forget the changes with numbers up to `up_to`."""
        self.nodes = {key: number for key, number in self.nodes.items() if number > up_to}
        self.domains = {key: number for key, number in self.domains.items() if number > up_to}
        self.payers = {key: number for key, number in self.payers.items() if number > up_to}


class StandingPlans:
    """The verdicts that are kept from walk to walk, and the changes since they were given.

    A walk begins with `begin` and ends with `end`. If a walk breaks off, `end` is not called: the
    runs behind were not reached, so the changes that concern them are kept.
    """

    def __init__(self) -> None:
        self._known: dict[Uid, StandingPlan] = {}
        self._lines: dict[Uid, Lines] = {}  # what each run had on the calendar when considered
        self._lease_changes = _ChangeNumbers()  # concern all runs
        self._entry_changes = _ChangeNumbers()  # concern only the runs behind, in the same walk
        self._possible: dict[Uid, Run] = {}  # runs that could start if nothing else ran (Q11)
        self._number = 0  # of the newest change
        self._begun = 0  # the newest change when the walk began
        self._policy: Policy | None = None
        self._is_trusted = False
        self._edges: tuple[Instant, Instant] = (0, 0)  # no window opens or closes between
        self._turn: Turn
        self._passing: QueuePass

    def begin(self, turn: Turn, walk: QueuePass) -> None:
        """Begin a walk: note what has changed since the last walk."""
        self._turn, self._passing = turn, walk
        world = turn.world
        is_other = (self._policy, self._is_trusted) != (world.policy, turn.time_trusted)
        if is_other or not self._edges[0] <= turn.now < self._edges[1]:
            world.journal.note_all()
            self._policy, self._is_trusted = world.policy, turn.time_trusted
        # An edit of a Budget may have moved an edge of a window: look for the next one again.
        self._edges = turn.now, _next_edge(world, turn.now)
        self.catch_up()
        walk.catch_up = self.catch_up_in_walk
        walk.possible = self._possible
        self._begun = self._number
        gone = [uid for uid in self._lines if uid not in world.work.pending]
        for uid in gone:
            self._note_lines(self._lines.pop(uid))
            self._known.pop(uid, None)
            self._possible.pop(uid, None)
        for uid in sorted(world.activating):
            self._compare_lines(uid)

    def end(self) -> None:
        """End a walk that has reached every run. Changes that every run has seen are forgotten."""
        self._entry_changes.clear(self._number)
        self._lease_changes.clear(self._begun)

    def catch_up(self) -> None:
        """Note what has changed in the World, including changes by this walk."""
        world = self._turn.world
        changes = world.journal.take(self._turn.now)
        if changes.is_all:
            self._known.clear()
            self._possible.clear()
            self._passing.forget_all()
        elif changes.nodes or changes.payers:
            self._note(changes)
            self._passing.leases_changed(changes.nodes)

    def catch_up_in_walk(self) -> None:
        """Note what has changed in the World during this walk, if anything has."""
        if not self._turn.world.journal.is_empty:
            self.catch_up()

    def _note(self, changes: Changes) -> None:
        """Give the changes of these nodes and payers the next number. They concern every run."""
        self._number += 1
        table, number = self._lease_changes, self._number
        table.nodes.update(dict.fromkeys(changes.nodes, number))
        table.payers.update(dict.fromkeys(changes.payers, number))
        for name in changes.nodes:
            self._note_domain(table, name)

    def _note_domain(self, table: _ChangeNumbers, name: str) -> None:
        state = self._turn.world.fleet.nodes.get(name)
        if state is not None:
            table.domains[(state.node.flavor, state.node.domain)] = self._number

    def _note_lines(self, lines: Lines) -> None:
        """Note that these entries and claims were added to the calendar or removed from it."""
        entries, claims = lines
        if not entries and not claims:
            return
        self._number += 1
        table = self._entry_changes
        for entry in entries:
            table.nodes[entry.node] = self._number
            self._note_domain(table, entry.node)
        for claim in claims:
            table.payers[claim.payer] = self._number

    def _compare_lines(self, uid: Uid) -> Lines:
        """Return what a run has on the calendar; note the changes since the run was last
        considered."""
        lines = self._turn.calendar.lines_of(uid)
        before = self._lines.get(uid, _NO_LINES)
        if lines != before:
            self._note_lines(before)
            self._note_lines(lines)
        if lines == _NO_LINES:
            self._lines.pop(uid, None)
        else:
            self._lines[uid] = lines
        return lines

    # One run after the other.

    def of(self, run: Run) -> StandingPlan | None:
        """Return the standing plan of a run; None if the run must be considered."""
        self.catch_up_in_walk()
        known = self._known.get(run.uid)
        if known is None:
            return None
        if self._stands(run, known):
            known.seen = self._number
            return known
        del self._known[run.uid]
        return None

    def _stands(self, run: Run, known: StandingPlan) -> bool:
        """Return whether nothing that the verdict depends on has changed."""
        turn = self._turn
        return (
            known.run is run
            and turn.now < known.until
            and run.uid not in turn.quarantined
            and present(turn.world, run) is known.reservation
            and (
                known.seen == self._number
                or not (
                    self._concerns(known, self._lease_changes)
                    or self._concerns(known, self._entry_changes)
                )
            )
            and self._has_its_place(run, known.verdict)
        )

    def _has_its_place(self, run: Run, verdict: Planned | InQueue) -> bool:
        """Return whether the depth still gives the run what the verdict says: a plan, or none
        (Q9)."""
        is_full = self._passing.is_full(run, verdict.refused)
        return is_full == isinstance(verdict, InQueue)

    def _concerns(self, known: StandingPlan, table: _ChangeNumbers) -> bool:
        """Return whether a change that the verdict has not seen concerns the run."""
        seen = known.seen
        for payer, number in table.payers.items():
            if number > seen and payer in known.payers:
                return True
        for name, number in table.nodes.items():
            if number > seen and name in known.nodes:
                return True
        flavor = known.request.placement.flavor
        return any(
            number > seen and domain[0] == flavor and self._might_have_room(known, domain)
            for domain, number in table.domains.items()
        )

    def _might_have_room(self, known: StandingPlan, domain: Domain) -> bool:
        """Return whether a group of the run (or all of them) might fit in a domain before
        `known.before`.

        It is asked first whether it would fit if the calendar were empty, because that is cheap.
        """
        pool = self._turn.world.fleet.pools[domain]
        placement = known.request.placement
        selected = placement.selector.domain
        if known.before is None or pool.home[1:] not in known.locations:
            return False
        before = known.before if known.before != NOW else self._turn.now + 1
        if selected is not None and pool.domain.rpartition("/")[2] != selected:
            return False
        outlook = self._passing.outlook(self._turn, placement.flavor, placement.pod_gpus)
        needed = (placement.pods + placement.spares) * (
            1 if placement.spread else len(placement.groups)
        )
        times = outlook.plain_times(pool.domain)
        if len(times) < needed or times[needed - 1] >= before:
            return False
        request = known.request
        times = outlook.times_for(pool.domain, request.run.uid, request.in_the_way, request.limit)
        return len(times) >= needed and times[needed - 1] < before

    def note(self, run: Run, verdict: Verdict | None) -> None:
        """Keep the verdict on a run that was considered, if verdicts on this run may stand.

        `verdict` is None if no part of the run waits.
        """
        lines = self._compare_lines(run.uid)
        if not isinstance(verdict, Planned | InQueue) or not _can_stand(self._turn.world, run):
            return
        footing = _footing(self._turn, run, verdict)
        if footing is None or verdict.request is None:
            return
        payers, before, until = footing
        world = self._turn.world
        self._known[run.uid] = StandingPlan(
            run,
            verdict,
            verdict.request,
            lines=lines,
            payers=payers,
            locations=frozenset(locations_for(world, run.spec)),
            reservation=present(world, run),
            before=before,
            until=until,
            seen=self._number,
        )


def assert_same(run: Run, stands: StandingPlan, verdict: Verdict | None) -> None:
    """Raise AssertionError unless considering the run gave the same verdict as the one that
    stands."""
    kept = stands.verdict
    is_same = (
        type(verdict) is type(kept)
        and isinstance(verdict, Planned | InQueue)
        and verdict.refused.essence == kept.refused.essence
    )
    if is_same and isinstance(verdict, Planned) and isinstance(kept, Planned):
        is_same = _essence(verdict.plan) == _essence(kept.plan)
    assert is_same, f"{run.key}: {kept} stands, and considered it is {verdict}"


def _essence(plan: Plan | None) -> Plan | None:
    """Return the plan without the details of how it was found, for comparison."""
    return plan and replace(plan, known=None, preview=None, asked=frozenset())


def _can_stand(world: World, run: Run) -> bool:
    """Return whether verdicts on the run may be kept.

    The run must wait for its first start as a whole. Runs that are opportunistic, stopped, or
    tolerate taints are always considered: free GPUs are counted in another way for them.
    """
    spec = run.spec
    return (
        spec.gang is Gang.RUN
        and not (spec.stop or spec.opportunistic or spec.tolerations or run.deleting)
        and run.uid not in world.books
        and run.uid not in world.activating
        and run.uid not in world.memory.blocked_binds
    )


Footing = tuple[frozenset[EnvelopeKey], Instant | None, Instant]


def _footing(turn: Turn, run: Run, verdict: Planned | InQueue) -> Footing | None:
    """Return what a verdict depends on: its payers, its `before` and its `until` (see
    `StandingPlan`).

    Returns None if the verdict may change just because time passes: an announced start, a start
    that depends on the clock, or payers whose GPU-hours are nearly used up.
    """
    world, refused = turn.world, verdict.refused
    asked = refused.payers_asked
    before: Instant | None
    if isinstance(verdict, InQueue):
        before = None if refused.reason.is_about_money else NOW
        until = FOREVER
    else:
        plan = verdict.plan
        if plan is None or plan.state is not State.PENDING or plan.by_cuts or plan.by_family:
            return None
        asked |= plan.asked
        since, policy = wait_of(world, run).since, world.policy
        if plan.places and not plan.is_site:
            if plan.held_from > since + policy.reservation_max_wait:
                return None
            before = until = plan.held_from
        elif plan.places or plan.money:
            return None
        elif plan.starts != since + max(policy.patience, policy.activation_lead):
            return None  # T0 follows from a known start that is too far away (Q4)
        else:
            before, until = FOREVER, plan.starts - policy.activation_lead
    asked.update(each.key for each in world.tree.envelopes((run.spec.owner,), run.spec.flavor))
    payers = set(asked)
    for key in asked:
        for aggregate in world.aggregates.get(key, ()):
            payers.update(aggregate.members)
    request = verdict.request
    if request is None or not all(
        has_ample_hours(world, request, key, now=turn.now) for key in payers
    ):
        return None
    until = min(until, turn.now + world.policy.reservation_max_wait)
    if request.span is not None:  # as a plan ahead comes nearer, its money stops being free
        for start in {claim.start for key in payers for claim in turn.calendar.claims_on(key)}:
            for at in (start - request.in_the_way, start - request.span):
                until = min(until, at) if at > turn.now else until
    return frozenset(payers), before, until


def _next_edge(world: World, now: Instant) -> Instant:
    """Return when the next window opens or closes."""
    edges = (at for each in world.envelopes.values() for at in (each.start, each.end) if at > now)
    return min(edges, default=FOREVER)
