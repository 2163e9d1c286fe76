"""Plays a file with the model and with the product, and finds the first difference."""

from dataclasses import dataclass

from tests.model.facts import Run, World
from tests.model.play import Restless, play
from tests.model.product import Holdings, NoSeed, Plans, Played, play_product
from tests.model.story import Story, read_text, short

Ends = dict[str, tuple[str, str, int]]  # of each run: phase, reason, attempts


@dataclass
class Difference:
    at: int  # since the story's start
    what: str
    text: str  # both sides' view, for a person

    def __str__(self) -> str:
        return f"at {short(self.at)}: {self.what}\n{self.text}"


def play_model(story: Story, seeds: object) -> Played:
    """Play a story with the model; return its record in the product's terms."""
    played = Played()
    seen: list[World] = []

    def look(world: World) -> None:
        seen[:] = [world]
        played.holdings[world.now] = holdings_of(world)
        played.plans[world.now] = plans_of(world)

    try:
        world = play(story, seeds, look)
        played.ends = {key: end_of_run(world, run) for key, run in world.runs.items()}
        played.told = world.notes
    except (NoSeed, Restless, AssertionError, LookupError, ValueError) as stopped:
        played.broken = str(stopped) or type(stopped).__name__
        played.broken_at = _last(stopped, seen)
        played.told = seen[0].notes if seen else []
    return played


def _last(stopped: Exception, seen: list[World]) -> int:
    return seen[0].now if seen else 0


def holdings_of(world: World) -> Holdings:
    holdings: Holdings = {}
    for lease in world.open_leases():
        key = (lease.run, lease.role, lease.payer, lease.node)
        holdings[key] = holdings.get(key, 0) + lease.gpus
    return holdings


def plans_of(world: World) -> Plans:
    plans: Plans = {}
    for run in world.runs.values():
        plan = run.plans.get(-1)
        if plan is not None:
            plans[run.key] = (plan.state, plan.confidence, plan.start)
    return plans


def end_of_run(world: World, run: Run) -> tuple[str, str, int]:
    """Phase, reason, attempts."""
    units = list(run.units.values())
    attempt = max(unit.attempt for unit in units)
    live = [unit for unit in units if unit.standing == "live"]
    if live:  # an attempt that is being taken back has not begun to run
        phase = "Pending" if all(unit.fate == "Rejected" for unit in live) else "Running"
        return (phase, phase, attempt)
    if any(unit.standing == "waiting" for unit in units):
        return ("Pending", run.said, attempt)
    failed = [unit for unit in units if unit.standing == "failed"]
    if not failed:
        return ("Completed", "Completed", attempt)
    return ("Failed", min(failed, key=lambda unit: unit.index).reason, attempt)


def compare(text: str, *, with_plans: bool = False) -> Difference | None:
    """Return the first difference, or None if model and product agree on this story.

    Raise `Invalid` if the product refuses the file.
    """
    product, seeds = play_product(text)
    story = read_text(text)
    model = play_model(story, seeds)
    return first_difference(story, product, model, with_plans=with_plans)


def first_difference(
    story: Story, product: Played, model: Played, *, with_plans: bool
) -> Difference | None:
    start = story.start
    end = start + max((step["at"] for step in story.steps), default=0)
    instants = sorted({*product.holdings, *model.holdings, *model.plans, *product.plans})
    theirs: Holdings = {}
    ours: Holdings = {}
    stops = [side.broken_at for side in (product, model) if side.broken]
    for at in (each for each in instants if each <= end):
        theirs = product.holdings.get(at, theirs)
        ours = model.holdings.get(at, ours)
        if stops and at >= min(stops):
            break
        if theirs != ours:
            return _show(at - start, "who holds what", product, model, at, theirs, ours, start)
        if with_plans and at in product.plans and at in model.plans:
            mine, other = _live(model.plans[at]), _live(product.plans[at])
            if mine != other:
                return _show(at - start, "plans", product, model, at, theirs, ours, start)
    for side, name in ((product, "product"), (model, "model")):
        if side.broken:
            at = side.broken_at
            what = f"the {name} stops: {side.broken}"
            return _show(at - start, what, product, model, at, theirs, ours, start)
    theirs_at_end, ours_at_end = _without_room(product.ends), _without_room(model.ends)
    if theirs_at_end != ours_at_end:
        changed = sorted(k for k in theirs_at_end if theirs_at_end[k] != ours_at_end.get(k))
        lines = [f"  {k}: product {product.ends[k]}, model {model.ends.get(k)}" for k in changed]
        return Difference(end - start, "how runs stand in the end", "\n".join(lines))
    return None


_OF_ROOM = (
    "InsufficientCapacity",
    "HeldForReservation",
    "NoDomainFits",
    "InsufficientNodeResources",
)


def _without_room(ends: Ends) -> Ends:
    """Return the ends without the exact reason that no GPUs are free: it is reported only once, and
    changes with every lease."""
    return {
        run: (phase, "no room" if reason in _OF_ROOM else reason, attempts)
        for run, (phase, reason, attempts) in ends.items()
    }


def _live(plans: Plans) -> Plans:
    """Return the current reservations, without the released and cancelled ones."""
    kept: Plans = {}
    for run, (state, confidence, start) in plans.items():
        if state == "Pending":
            kept[run] = (state, confidence, start)
        elif state in ("Activating", "Blocked"):
            kept[run] = (state, "", 0)
    return kept


def _show(
    since: int,
    what: str,
    product: Played,
    model: Played,
    at: int,
    theirs: Holdings,
    ours: Holdings,
    start: int,
) -> Difference:
    lines = []
    for key in sorted({*theirs, *ours}):
        if theirs.get(key) != ours.get(key):
            run, role, payer, node = key
            lines.append(
                f"  {run} {role} on {node} paid by {payer}: "
                f"product {theirs.get(key, 0)}, model {ours.get(key, 0)}"
            )
    for name, side in (("product", product), ("model", model)):
        plans = side.plans.get(at) or _before(side.plans, at)
        lines.append(f"  plans of the {name}:")
        for run, (state, confidence, begins) in sorted(plans.items()):
            if state not in ("Released", "Canceled"):
                lines.append(f"    {run}: {state} {confidence} {short(begins - start)}")
        lines.append(f"  last words of the {name}:")
        for told, words in [each for each in side.told if each[0] <= at][-8:]:
            lines.append(f"    {short(told - start)} {words}")
    return Difference(since, what, "\n".join(lines))


def _before(plans: dict[int, Plans], at: int) -> Plans:
    earlier = [each for each in plans if each <= at]
    return plans[max(earlier)] if earlier else {}
