"""Q, A and G. The queue: one walk in order of submission; starts, plans, activations."""

from dataclasses import dataclass, field, replace

from tests.model import overdraft
from tests.model.bind import start
from tests.model.calendar import Calendar, Entry, end_of, make_entry, plan_entry
from tests.model.facts import Hold, Placement, Plan, Run, Segment, Spot, World, waiting_units
from tests.model.life import apply_cuts
from tests.model.money import can_give, cover, is_allowed
from tests.model.packing import (
    Refusal,
    Room,
    admit,
    empty_fleet,
    pay_on_empty_fleet,
    places_that_could_hold,
    put_all,
)
from tests.model.resolve import Gone, find_site, kind_of_loss, resolve_site
from tests.model.story import FOREVER

ALL = -1  # the plan of a whole run, or of the groups that a sweep lacks of its minimum


@dataclass
class Pass:
    """One pass over the queue (Q2). `ahead` are the plans of the runs considered so far."""

    world: World
    ahead: list[Entry] = field(default_factory=list)
    ahead_of: dict[str, list[Entry]] = field(default_factory=dict)
    planned: dict[str, int] = field(default_factory=dict)
    kept_domains: set[str] = field(default_factory=set)  # Q10
    has_started: bool = False
    has_freed: bool = False  # a hold or a shared envelope was given back: the pass starts again

    def walk(self) -> bool:
        """Consider all runs; return whether any started or was activated, which needs another
        pass."""
        for run in self.world.runs.values():  # a hold ends also while its run is in back-off
            is_over = run.hold is not None and self.world.now >= hold_ends(self.world, run.hold)
            if is_over and not self.world.ready_units(run):
                self._give_up(run)
        for run in self.world.waiting() if not self.has_freed else []:
            self.ahead_of[run.key] = list(self.ahead)
            self.consider(run)
            if self.has_freed:
                break
        return self.has_started or self.has_freed

    # One run

    def consider(self, run: Run) -> None:
        world = self.world
        run.beyond = []
        if run.stop:
            return
        if not is_allowed(world, run):
            run.said, run.hold = "OwnerNotAllowed", None
            world.drop_plans(run)
            return
        if not world.ready_units(run):
            unit = waiting_units(run)[0]
            run.said = unit.paused_by
            world.drop_plans(run)
            if unit.blocked_binds:
                run.plans[ALL] = Plan("Blocked", reason="BindFailing")
            return
        if run.hold is not None:
            self._start_where_held(run)
            return
        if run.is_sweep:
            self._consider_sweep(run)
        else:
            self._consider_whole(run)

    def _consider_whole(self, run: Run) -> None:
        """Q3: start the run at the largest width of its grid that fits."""
        refusal = Refusal("", of_money=False)
        for width in range(run.most_groups * run.group_gpus, run.least - 1, -run.step):
            found = self._try(run, list(range(width // run.group_gpus)))
            if isinstance(found, Placement):
                self._start(run, found)
                return
            refusal = found
        run.said = refusal.reason
        self._plan(run, ALL, list(range(run.least_groups)), refusal)

    def _consider_sweep(self, run: Run) -> None:
        """G1, G2."""
        world, refusal = self.world, None
        for unit in world.ready_units(run):
            if self._live(run) >= run.most_groups:
                break
            found = self._try(run, [unit.index])
            if isinstance(found, Refusal):
                refusal = found
                break
            self._start(run, found)
        ready = [unit.index for unit in world.ready_units(run)]
        missing = max(0, run.least_groups - self._live(run))
        wanted = ready[: max(0, run.most_groups - self._live(run))]
        first, further = wanted[:missing], wanted[missing:]
        if refusal is None:
            first, further = [], []
        else:
            run.said = refusal.reason
        if not first:
            self._release(run, ALL)
        if refusal is not None and first and not self._plan(run, ALL, first, refusal):
            return
        for group in further if refusal is not None else []:
            if not self._plan_beyond(run, group, refusal):
                break  # the next group has no known start either

    def _plan_beyond(self, run: Run, group: int, refusal: Refusal) -> bool:
        """G2: plan a group beyond the minimum by Q4 alone, like a separate run."""
        if not self._is_within_depth(run, refusal):
            return False
        calendar = Calendar(self.world, run, self.ahead, as_group=group)
        for at in calendar.instants():
            found = admit(calendar, [group], at)
            if isinstance(found, Placement):
                if at - self.world.now <= self.world.config[MAX_WAIT]:
                    entry = plan_entry(self.world, run, found, at)
                    entry.holder = f"{run.key}#{group}"
                    self.ahead.append(entry)
                run.beyond.append(at)
                return True
        return False

    def _live(self, run: Run) -> int:
        return sum(1 for unit in run.units.values() if unit.standing == "live")

    def _try(self, run: Run, groups: list[int]) -> Placement | Refusal:
        """Q3: try to place groups. F1: a filler that does not fit on free GPUs uses spares, too."""
        calendar = Calendar(self.world, run, self.ahead)
        found = admit(calendar, groups, self.world.now)
        if isinstance(found, Refusal) and run.opportunistic and not found.of_money:
            filling = admit(calendar, groups, self.world.now, fill=True)
            return filling if isinstance(filling, Placement) else found
        return found

    def _start(self, run: Run, placement: Placement) -> None:
        start(self.world, run, placement)
        self.has_started = True
        for key in [ALL] if not run.is_sweep else [g for g in placement.groups() if g in run.plans]:
            self._release(run, key)
        is_rejected = any(each is run for each, _, _ in self.world.rejected)
        if run.hold is not None and not is_rejected:
            run.hold = None
            self._release(run, ALL)

    def _release(self, run: Run, key: int) -> None:
        if key in run.plans:
            run.history.append(replace(run.plans.pop(key), state="Released"))

    # A4

    def _start_where_held(self, run: Run) -> None:
        """Start the run on its held GPUs if they are free. If the hold's time is over or its payers
        may no longer pay, the run waits like any other."""
        world, hold = self.world, run.hold
        assert hold is not None
        calendar = Calendar(world, run, [])
        then = Calendar(world, run, [], ending_is_gone=True)
        segments = hold.placement.segments()
        if not _can_pay(then, segments, world.now):
            self._give_up(run)
            return
        groups = _groups_held_for(world, run, hold)
        is_free = _has_room(calendar, hold.placement, world.now)
        if groups and is_free and _can_pay(calendar, segments, world.now):
            self._start(run, _deal(world, run, hold, groups))
        elif world.now >= hold_ends(world, hold):
            self._give_up(run)

    def _give_up(self, run: Run) -> None:
        assert run.hold is not None
        run.hold = None
        self.world.drop_plans(run)
        self.has_freed = True

    # Plans

    def _plan(self, run: Run, key: int, groups: list[int], refusal: Refusal) -> bool:
        """Plan the run; return False if it could never start."""
        world = self.world
        never = self._never_fits(run, groups)
        if never:
            run.said = never if key == ALL else run.said
            self._book(run, key, Plan("Blocked", reason=never))
            return False
        if not self._is_within_depth(run, refusal):
            run.plans.pop(key, None)
            return True
        was = run.plans.get(key)
        reclaim_at = self._reclaim_at(run, key, groups, was)
        if reclaim_at is not None and reclaim_at <= world.now and self._take_back(run, groups):
            return True
        plan = self._known_or_by_cuts(run, groups, refusal, was)
        if reclaim_at is not None and (plan.state == "Blocked" or reclaim_at <= plan.start):
            shown = replace(
                plan,
                state="Pending",
                confidence="needs-money",
                start=reclaim_at,
                known_at=plan.start if plan.placement and not plan.is_site else None,
            )
            self._book(run, key, replace(shown, reclaim_at=reclaim_at), entry_of=plan)
        else:
            self._book(run, key, plan)
        return True

    def _is_within_depth(self, run: Run, refusal: Refusal) -> bool:
        """Q9: return whether the run is planned at all. Runs that need money count separately."""
        kind = "moneyDepth" if refusal.of_money else "depth"
        mine, everybody = f"{kind} {run.owner}", kind
        if (
            self.planned.get(mine, 0) >= self.world.config[f"reservation.{kind}PerOwner"]
            or self.planned.get(everybody, 0) >= self.world.config[f"reservation.{kind}"]
        ):
            return False
        for name in (mine, everybody):
            self.planned[name] = self.planned.get(name, 0) + 1
        return True

    def _book(self, run: Run, key: int, plan: Plan, entry_of: Plan | None = None) -> None:
        """Write the Reservation and put the plan on the calendar for the runs behind it."""
        world, was, entered = self.world, run.plans.get(key), entry_of or plan
        if was is not None and was.state == "Blocked" != plan.state:
            run.history.append(was)
        run.plans[key] = plan
        if entered.placement is not None:
            at = max(entered.start, world.now)
            if entered.confidence == "needs-cuts" or at - world.now <= world.config[MAX_WAIT]:
                if entered.is_kept:
                    at = world.now
                entry = plan_entry(world, run, entered.placement, at)
                if entered.is_kept:
                    entry.passable_by = world.config["reservation.patience"]
                self.ahead.append(entry)
        if entered.claims:
            self.ahead.append(make_entry(world, run, world.now, {}, entered.claims))

    def _known_or_by_cuts(
        self, run: Run, groups: list[int], refusal: Refusal, was: Plan | None
    ) -> Plan:
        world = self.world
        cuts_at = was.cuts_at if was is not None else None
        known = self._first_known(run, groups, was)
        latest = run.waiting_since + world.config[MAX_WAIT]
        first_cut = run.waiting_since + max(world.config["reservation.patience"], self._notice)
        may_cut = not run.opportunistic
        is_late = known is not None and may_cut and known.start > latest
        if is_late and self._is_funded(run, groups, max(latest, world.now)):  # Q4
            known, first_cut = None, max(latest, run.waiting_since + self._notice)
        if known is not None and (cuts_at is None or known.start < cuts_at):
            return replace(known, reason=refusal.reason, cuts_at=cuts_at)
        if not may_cut:
            return Plan(confidence="exact", start=FOREVER, reason=refusal.reason)
        shared = self._shared(run, groups)
        at_some_time = [world.now, *Calendar(world, run, self.ahead).instants()]
        if known is None and not any(
            self._is_funded(run, groups, at, shared) for at in at_some_time
        ):
            claims = self._claims(run, groups) if world.now >= first_cut else []
            return Plan(
                confidence="needs-money", start=first_cut, reason=refusal.reason, claims=claims
            )
        plan = self._by_cuts(run, groups, first_cut, was, shared)
        return replace(plan, reason=refusal.reason)

    @property
    def _notice(self) -> int:
        return int(self.world.config["activationLead"])

    # Q4

    def _first_known(self, run: Run, groups: list[int], was: Plan | None) -> Plan | None:
        """Return the first instant at which the run fits. A plan for the same instant is kept if
        possible (Q7)."""
        world = self.world
        calendar = Calendar(world, run, self.ahead)
        instants = set(calendar.instants())
        kept, kept_at = None, 0
        if was is not None and was.placement is not None and not was.is_site:
            kept, kept_at = was.placement, was.known_at or was.start
            if kept.groups() != groups or kept_at <= world.now:
                kept = None
        if kept is not None:
            instants.add(kept_at)
        for at in sorted(instants):
            found: Placement | Refusal | None = None
            if kept is not None and at == kept_at:
                pays = _can_pay(calendar, kept.segments(), at)
                found = kept if pays and _has_room(calendar, kept, at) else None
            found = found or admit(calendar, groups, at)
            if isinstance(found, Placement):
                payers = {name for name, _, _ in found.segments()}
                aligned = any(e.name in payers and e.start == at for e in world.envelopes)
                return Plan(
                    "Pending", "window-aligned" if aligned else "exact", at, placement=found
                )
        return None

    def _is_funded(self, run: Run, groups: list[int], at: int, without: Gone = frozenset()) -> bool:
        """Return whether the run has payers at `at`, on any GPUs."""
        calendar = Calendar(self.world, run, self.ahead, without=without)
        return isinstance(pay_on_empty_fleet(calendar, groups, at), Placement)

    def _never_fits(self, run: Run, groups: list[int]) -> str:
        """Q11: return why the fleet and the budgets could not hold the run even if empty."""
        world = self.world
        calendar = Calendar(world, run, [])
        calendar.entries, calendar.leases, calendar.ends = [], [], {}
        openings = {e.start for e in world.envelopes if e.flavor == run.flavor}
        refusal: Refusal | None = None
        groups = groups[:1] if run.is_sweep else groups  # groups of a sweep may start one by one
        room = empty_fleet(world, run)
        if not room.bins:
            return "NoSuchFlavor"
        if put_all(room, groups, room.domains(), []) is None:
            largest = max(n.gpus for n in world.nodes.values() if n.flavor == run.flavor)
            return "PodTooLarge" if run.pod_gpus > largest else "FleetTooSmall"
        for at in [world.now, *sorted(each for each in openings if each > world.now)]:
            found = pay_on_empty_fleet(calendar, groups, at)
            if isinstance(found, Placement):
                return ""
            refusal = refusal or found
        return refusal.reason if refusal is not None else ""

    # Q5, Q10

    def _by_cuts(
        self, run: Run, groups: list[int], first: int, was: Plan | None, shared: Gone
    ) -> Plan:
        world = self.world
        waits = Plan("Pending", "needs-cuts", first)
        if world.config["resolver.cuts"] != "Lottery":
            return self._keep_site(run, groups, waits, was)
        announced = was.cuts_at if was is not None and was.state == "Pending" else None
        if announced is None and world.now < first - self._notice:
            return waits
        if any(world.leases[number].is_open for number in run.last_victims):
            return Plan("Blocked")  # A4: no other run is cut for this run again meanwhile
        if announced is not None and was is not None:
            at = max(announced, world.now)
            stands = was.is_site and was.placement is not None and was.placement.groups() == groups
            if (
                stands
                and was.placement is not None
                and self._is_possible(run, was.placement, at, shared)
            ):
                return replace(
                    waits,
                    start=announced,
                    placement=was.placement,
                    is_site=True,
                    cuts_at=announced,
                )
            only = None
            if was.is_site and was.placement is not None:
                only = sorted({world.nodes[spot.node].domain for spot in was.placement.spots})
            site = find_site(world, run, groups, self.ahead, at, only=only, returned=shared)
            if site is not None:
                return replace(
                    waits, start=announced, placement=site, is_site=True, cuts_at=announced
                )
        first = max(first, world.now + self._notice)
        calendar = Calendar(world, run, self.ahead)
        protections = {world.protected_until(other) for other in world.runs.values()}
        later = {at for at in {*calendar.instants(), *protections} if first < at < FOREVER}
        for at in [first, *sorted(later)]:
            site = find_site(world, run, groups, self.ahead, at, returned=shared)
            if site is not None:
                return replace(waits, start=at, placement=site, is_site=True, cuts_at=at)
        return Plan("Blocked")

    def _is_possible(self, run: Run, site: Placement, at: int, shared: Gone) -> bool:
        """Q7: return whether a site still has its GPUs and its payers."""
        world = self.world
        leases = world.open_leases()
        cuttable = frozenset(x.number for x in leases if kind_of_loss(world, x, run, at))
        place = Calendar(world, run, self.ahead, without=cuttable)
        money = Calendar(world, run, self.ahead, without=shared)
        return _has_room(place, site, at) and _can_pay(money, site.segments(), at)

    def _keep_site(self, run: Run, groups: list[int], waits: Plan, was: Plan | None) -> Plan:
        """Q10: if nothing may be cut, let the first run of a domain that has waited long enough
        keep its site."""
        world = self.world
        if world.now < waits.start:
            return waits
        site = was.placement if was is not None and was.is_kept else None
        if site is None or not self._is_possible(run, site, world.now, frozenset()):
            site = find_site(world, run, groups, self.ahead, world.now)
        if site is None:
            return waits
        domains = {world.nodes[spot.node].domain for spot in site.spots}
        if domains & self.kept_domains:
            return waits
        self.kept_domains |= domains
        return replace(waits, placement=site, is_site=True, is_kept=True)

    # Q6

    def _gpus(self, run: Run, groups: list[int]) -> int:
        return len(groups) * (run.pods_per_group + run.spare_pods) * run.pod_gpus

    def _shared(self, run: Run, groups: list[int]) -> Gone:
        """O5: return the leases that the family may have to give back, if the run needs them."""
        if self.world.config["resolver.cuts"] == "Never":
            return frozenset()
        if not overdraft.is_locked_out(self.world, run, groups, self.ahead):
            return frozenset()
        return frozenset(x.number for x in overdraft.shared_leases(self.world, run))

    def _reclaim_at(self, run: Run, key: int, groups: list[int], was: Plan | None) -> int | None:
        """Return when the family rule is tried: one notice after its announcement."""
        if key != ALL or not self._shared(run, groups):
            return None
        known = was.reclaim_at if was is not None else None
        return self.world.now + self._notice if known is None else known

    def _take_back(self, run: Run, groups: list[int]) -> bool:
        """O5: take back shared money; return whether the run starts by it, at once or when the
        victims are gone."""
        world = self.world
        taken = overdraft.take_back(
            world, run, groups, self.ahead,
            lambda: world.seeds("Overdraft", run.key, world.now),
        )  # fmt: skip
        if taken is None:
            return False
        for number, segments in taken.moved.items():
            overdraft.move(world, world.leases[number], segments)
        apply_cuts(world, taken.cuts, "Overdrawn")
        self.has_freed = True
        if taken.cuts or any(x.ending for x in world.open_leases()):
            self._hold(run, taken.placement, [n for each in taken.cuts for n in each.leases])
        else:
            self._start(run, taken.placement)
        return True

    def _hold(self, run: Run, placement: Placement, victims: list[int]) -> None:
        """A4: hold a placement for a run until its victims are gone."""
        world = self.world
        run.hold = Hold(world.now, victims, placement)
        run.last_victims = victims
        plan = run.plans.get(ALL) or Plan(start=world.now, reason=run.said)
        run.plans[ALL] = replace(plan, state="Activating")
        self.has_started = True

    def _claims(self, run: Run, groups: list[int]) -> list[Segment]:
        """Q6: return the free money in the envelopes of the run's walk, up to what it lacks."""
        calendar = Calendar(self.world, run, self.ahead)
        bills = [
            cover(calendar, self._gpus(run, groups), place, at=self.world.now)
            for place in places_that_could_hold(self.world, run, groups)
        ]
        return min(bills, key=lambda bill: bill.missing).segments if bills else []

    # A1, A2

    def activate(self) -> bool:
        """Activate a due run, in order of (T, place in the queue).

        Return whether one was activated, which needs another pass.
        """
        world = self.world
        due = [
            run
            for run in world.waiting()
            if (plan := run.plans.get(ALL)) is not None
            and plan.state == "Pending"
            and plan.is_site
            and not plan.is_kept
            and (plan.cuts_at or 0) <= world.now
            and world.ready_units(run)
        ]
        busy = {
            world.nodes[spot.node].domain
            for run in world.runs.values()
            if run.hold is not None
            for spot in run.hold.placement.spots
        }
        for run in sorted(due, key=lambda run: (run.plans[ALL].cuts_at or 0, run.order)):
            site = run.plans[ALL].placement
            assert site is not None
            domains = {world.nodes[spot.node].domain for spot in site.spots}
            if not domains & busy and self._activate(run, site):
                return True
            busy |= domains
        return False

    def _activate(self, run: Run, site: Placement) -> bool:
        """A3, O5: take back the money that the run lacks from its family, then cut in the site's
        domains."""
        world, groups, ahead = self.world, site.groups(), self.ahead_of[run.key]
        moved: dict[int, list[Segment]] = {}
        cuts = []
        money = Calendar(world, run, ahead)
        if not _can_pay(money, site.segments(), world.now):

            def is_paid(gone: Gone) -> Placement | None:
                calendar = Calendar(world, run, ahead, without=gone)
                return site if _can_pay(calendar, site.segments(), world.now) else None

            taken = overdraft.take_back(
                world, run, groups, ahead,
                lambda: world.seeds("Overdraft", run.key, world.now), is_paid,
            )  # fmt: skip
            if taken is None:
                return False
            moved, cuts = taken.moved, taken.cuts
        gone = frozenset(n for each in cuts for n in each.leases)
        found = resolve_site(
            world, run, site, ahead, lambda: world.seeds("Reservation", run.key, world.now), gone
        )
        if found is None or not (found[0] or cuts or moved):
            return False  # leases that are already ending free enough GPUs
        victims = [n for each in [*cuts, *found[0]] for n in each.leases]
        for number, segments in moved.items():
            if number not in victims:
                overdraft.move(world, world.leases[number], segments)
        apply_cuts(world, cuts, "Overdrawn")
        apply_cuts(world, found[0], "RandomPreempt")
        self._hold(run, found[1], victims)
        world.note(f"{run.key} is activated: {[(c.kind, c.run, c.group) for c in found[0]]}")
        return True


MAX_WAIT = "reservation.maxWait"


def hold_ends(world: World, hold: Hold) -> int:
    """A4: return when a hold is given up."""
    last = max((world.leases[n].deadline for n in hold.victims), default=0)
    return int(max(hold.at + world.config["drain.timeout"], last))


def _groups_held_for(world: World, run: Run, hold: Hold) -> list[int]:
    """Return the groups to start on the held GPUs: the lowest waiting ones, as many as fit."""
    if not run.is_sweep:
        return hold.placement.groups()
    count = len(hold.placement.groups())
    ready = [unit.index for unit in world.ready_units(run)]
    return ready[:count] if len(ready) >= count else []


def _deal(world: World, run: Run, hold: Hold, groups: list[int]) -> Placement:
    """Assign the pods to the held GPUs, by P."""
    held = hold.placement.gpus_by_node(run.pod_gpus)
    spots: list[Spot] = []
    left = list(groups)
    for location in sorted(hold.placement.bills):
        mine = {s.group for s in hold.placement.spots if world.nodes[s.node].place == location}
        some, left = left[: len(mine)], left[len(mine) :]
        nodes = {n: g for n, g in held.items() if world.nodes[n].place == location}
        room = Room(run, world, {(name, "free"): gpus for name, gpus in nodes.items()})
        room.used = Calendar(world, run, []).in_use(world.now)
        dealt = put_all(room, some, room.domains(), []) if some else []
        assert dealt is not None, f"{run.key} fits where it is held"
        spots += dealt
    return Placement(spots, hold.placement.bills)


def _has_room(calendar: Calendar, placement: Placement, at: int) -> bool:
    room = calendar.room(at, calendar.until(at))
    nodes = placement.gpus_by_node(calendar.run.pod_gpus)
    return all(room.get(name, 0) >= gpus for name, gpus in nodes.items())


def _can_pay(calendar: Calendar, segments: list[Segment], at: int) -> bool:
    spent: list[Segment] = []
    for name, gpus, relation in segments:
        envelope = calendar.world.envelope(name)
        if envelope is None:
            return False
        ends = (end_of(calendar.run, at), calendar.until(at))
        most, _ = can_give(calendar, envelope, relation, at, ends, spent)
        if most < gpus:
            return False
        spent.append((name, gpus, relation))
    return True


def take_pass(world: World) -> tuple[bool, list[Entry]]:
    """Q2, A1: walk the queue, then activate one run that is due. Also returns all plans."""
    queue = Pass(world)
    changed = queue.walk() or queue.activate()
    return changed, queue.ahead


def plans(world: World) -> list[Entry]:
    """Return all plans as they are, for a run behind the whole queue."""
    found: list[Entry] = []
    for run in world.waiting():
        for plan in run.plans.values():
            if plan.placement is not None and plan.state == "Pending":
                found.append(plan_entry(world, run, plan.placement, max(plan.start, world.now)))
            if plan.claims:
                found.append(make_entry(world, run, world.now, {}, plan.claims))
    return found
