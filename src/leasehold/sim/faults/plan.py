"""Draws the plan of a simulation from a seed: story, faults and attacks.

A plan is data: `leasehold sim` plays it, and `shrink` reduces it. A plan that was written to a file
plays the same without its seed. Each part of a plan has its own random stream, so a change of one
profile's attacks does not change the other parts.
"""

from random import Random

from msgspec import field

from leasehold.core.facts import Record
from leasehold.core.units import MINUTE, SECOND, Millis
from leasehold.sim.faults.settings import draw_rollout, with_failing_silence
from leasehold.sim.faults.stories import minutes_of, story_of, with_broken_gpus
from leasehold.sim.faulty import KINDS as STORE_FAULTS
from leasehold.sim.network import KINDS as NETWORK_FAULTS
from leasehold.sim.scenario.trouble import (
    ANY,
    ANY_NODE,
    BUSY_NODE,
    CONTROLLERS,
    LEADER,
    NODES,
    RECOVERING,
    STANDBY,
    Attack,
    Harm,
    Profile,
    Rollout,
)

GAPS = (0, 0, 0, 1, 1, 2, 3, 5, 9)
STEPS_MAX = 30
AFTER: Millis = 3 * MINUTE  # duration of faults after the story's last step
PPM_MAX = 150_000  # within the drift that the margins allow, with space for rounding
PPM_USUAL = 200


WEIGHTS = {
    Profile.QUIET: 5,
    Profile.UNIFORM: 35,
    Profile.HUNTER: 40,
    Profile.LIVENESS: 15,
    Profile.BREAKING: 5,
}
# Store calls around which a leader is attacked: commit, seal, recovery, tenure.
COMMIT = (
    "before update LedgerHead", "before update LedgerHead", "after update LedgerHead",
    "before create LedgerBatch", "after create LedgerBatch",
)  # fmt: skip
POINTS = (
    "before update Tenure", "after update Tenure", "after get Tenure",
    "before get LedgerHead", "after get LedgerHead",
    "before list Reservation", "after scan Lease", "after scan Pod", "after scan Run",
    "before write_all Lease", "after write_all Lease",
    "before write_all Pod", "after write_all Pod",
    "before create Resolution", "after create Resolution",
)  # fmt: skip
# Rare calls at which attacks lie in wait: creation of Resolutions, and take-overs.
RARE = (
    (ANY, "before create Resolution"), (ANY, "after create Resolution"),
    (RECOVERING, "before get LedgerHead"), (RECOVERING, "before update LedgerHead"),
    (RECOVERING, "after update LedgerHead"), (RECOVERING, "before list Resolution"),
    (RECOVERING, "after list Resolution"), (RECOVERING, "after scan Lease"),
)  # fmt: skip
# The worst moments for a user's edit: after the decision, before its effect.
WORST = (
    (LEADER, "before make Pod"), (LEADER, "before update LedgerHead"),
    (LEADER, "after update LedgerHead"), (LEADER, "after create LedgerBatch"),
    (RECOVERING, "before get LedgerHead"), (RECOVERING, "after scan Run"),
    (RECOVERING, "after scan Pod"), (RECOVERING, "before update LedgerHead"),
)  # fmt: skip
HARMS = tuple(harm for harm in Harm if harm is not Harm.MEDDLE)
LONGER = (17, 20, 30)  # seconds until another process has taken over
SHORTER = (4, 6)  # seconds during which a leader keeps its tenure


class FaultPlan(Record, frozen=True):
    seed: int  # of the order of tasks and the times of faults
    profile: Profile
    story: str  # text of a scenario file
    trouble: Millis  # duration of faults and attacks
    store: dict[str, float] = field(default_factory=dict)
    nodes: dict[str, float] = field(default_factory=dict)
    network: dict[str, float] = field(default_factory=dict)
    attacks: tuple[Attack, ...] = ()
    drifts: dict[str, int] = field(default_factory=dict)
    offsets: dict[str, Millis] = field(default_factory=dict)
    stale: float = 0.0  # rate of reads answered by a lagging replica
    late: float = 0.0  # rate of statuses that arrive again, much later
    rollout: Rollout = Rollout()
    core: str = ""  # the controller that is healed at the end; "": all of them
    is_shuffled: bool = True


def draw_plan(seed: int, *, profile: Profile | None = None, story: str | None = None) -> FaultPlan:
    random = Random(f"{seed}/profile")
    drawn = profile or random.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
    text = story or _story(seed)
    trouble = _last_step(text) + AFTER
    is_quiet = drawn is Profile.QUIET
    store = {} if is_quiet else _store_rates(Random(f"{seed}/store"))
    return FaultPlan(
        seed=seed,
        profile=drawn,
        story=text,
        trouble=trouble,
        store=store,
        nodes={kind: rate for kind, rate in store.items() if not kind.startswith("kill")},
        network={} if is_quiet else _network_rates(Random(f"{seed}/network")),
        attacks=_attacks(seed, drawn, trouble, text),
        drifts=_drifts(Random(f"{seed}/drifts"), drawn),
        offsets=_offsets(Random(f"{seed}/offsets"), drawn),
        stale=0.0 if is_quiet else Random(f"{seed}/stale").choice((0.0, 0.02, 0.1, 0.4)),
        late=0.0 if is_quiet else Random(f"{seed}/late").choice((0.0, 0.05, 0.2)),
        rollout=Rollout() if is_quiet else draw_rollout(Random(f"{seed}/rollout"), text),
        core=Random(f"{seed}/core").choice(CONTROLLERS) if drawn is Profile.LIVENESS else "",
    )


def _story(seed: int) -> str:
    text, random = story_of(seed, gaps=GAPS, steps_max=STEPS_MAX), Random(f"{seed}/gpus")
    text = with_broken_gpus(text, random) if random.random() < 0.4 else text
    return with_failing_silence(text, Random(f"{seed}/silence"))


def _last_step(text: str) -> Millis:
    """Return the time of a story's last step. The story must have one step per line, timed in
    minutes."""
    last = text.rstrip().rsplit('"at": "', 1)[1]
    return int(last.split("m", 1)[0]) * MINUTE


def _store_rates(random: Random) -> dict[str, float]:
    rates = {}
    for kind in STORE_FAULTS:
        if random.random() < 0.6:
            rates[kind] = random.choice((0.005, 0.02, 0.1))
    for kind in ("kill-before", "kill-after"):
        if kind in rates:
            rates[kind] = random.choice((0.001, 0.005))
    return rates


def _network_rates(random: Random) -> dict[str, float]:
    rates = {}
    for kind, choices in (
        ("net-drop", (0.005, 0.03, 0.1)),
        ("net-copy", (0.01, 0.1)),
        ("net-delay", (0.05, 0.3)),
        ("net-spike", (0.002, 0.01)),
    ):
        assert kind in NETWORK_FAULTS, kind
        if random.random() < 0.6:
            rates[kind] = random.choice(choices)
    return rates


def _drifts(random: Random, profile: Profile) -> dict[str, int]:
    usual = {name: random.randint(-PPM_USUAL, PPM_USUAL) for name in CONTROLLERS}
    return {} if profile is Profile.QUIET else usual


def _offsets(random: Random, profile: Profile) -> dict[str, Millis]:
    usual = {name: random.randint(-2 * SECOND, 2 * SECOND) for name in CONTROLLERS}
    return {} if profile is Profile.QUIET else usual


def _attacks(seed: int, profile: Profile, trouble: Millis, story: str) -> tuple[Attack, ...]:
    if profile is Profile.QUIET:
        return ()
    found = _drawn_attacks(Random(f"{seed}/attacks"), profile, trouble)
    if profile is Profile.HUNTER:
        found += _lying_in_wait(Random(f"{seed}/rare"), trouble)
    if profile is Profile.BREAKING:
        found += _outlived(Random(f"{seed}/outlived"), story)
    found += _cut_links(Random(f"{seed}/links"), trouble)
    found += _meddling(Random(f"{seed}/users"), trouble)
    return tuple(sorted(found, key=lambda attack: attack.at))


def _lying_in_wait(random: Random, trouble: Millis) -> list[Attack]:
    """Draw three pauses at store calls that happen rarely or never, armed in the first half of the
    simulation. Half of them also pause the next process at the same call, for a shorter time. The
    first process then continues while its successor is in the middle of its work."""
    found = []
    for who, point in random.sample(RARE, 3):
        at, lasts = random.randrange(trouble // 2), random.choice(LONGER) * SECOND
        found.append(Attack(at=at, harm=Harm.PAUSE, who=who, lasts=lasts, point=point))
        if random.random() < 0.5:
            lasts = random.choice(SHORTER) * SECOND
            found.append(Attack(at=at + 1, harm=Harm.PAUSE, who=who, lasts=lasts, point=point))
    return found


def _outlived(random: Random, story: str) -> list[Attack]:
    """Draw attacks that depose a leader without its knowledge. Its clock is slowed down, and it is
    cut off until another process has sealed the head. The cut is healed just before a step, so that
    only the head can show the old leader that it was deposed."""
    found = []
    minutes = sorted({each for each in minutes_of(story) if each})
    for minute in random.sample(minutes, min(len(minutes), 4)):
        heals = minute * MINUTE - 50
        slow, cut = heals - 40 * SECOND, heals - 20 * SECOND
        found += [
            Attack(at=slow, harm=Harm.DRIFT, who=LEADER, lasts=60 * SECOND, amount=-750_000),
            Attack(at=cut, harm=Harm.CUT, who=LEADER, lasts=heals - cut),
        ]
    return found


def _meddling(random: Random, trouble: Millis) -> list[Attack]:
    """Draw cancellations and deletions of runs by users at bad moments. Half of them also pause the
    leader before it creates pods. Meanwhile another leader closes the leases, so the pods are
    unwanted when the first leader continues."""
    found: list[Attack] = []
    for _ in range(random.choice((0, 1, 2, 4))):
        who, point = random.choice(WORST)
        at = random.randrange(trouble)
        if random.random() < 0.5:
            lasts, (who, point) = random.choice(LONGER) * SECOND, random.choice(WORST[4:])
            held = Attack(at=at, harm=Harm.PAUSE, who=LEADER, lasts=lasts, point=WORST[0][1])
            found.append(held)
        found.append(Attack(at=at, harm=Harm.MEDDLE, who=who, point=point))
    return found


def _cut_links(random: Random, trouble: Millis) -> list[Attack]:
    """Draw cuts of single nodes from the store: for a moment, until their silence is noticed, or
    for long."""
    found: list[Attack] = []
    if random.random() < 0.4:
        return found
    at, every = 0, random.choice((60, 200, 600)) * SECOND
    while True:
        at += 1 + int(random.expovariate(1 / every))
        if at >= trouble:
            return found
        harm = random.choice((Harm.CUT, Harm.CUT, Harm.CUT_REQUESTS, Harm.CUT_ANSWERS))
        who = random.choice((BUSY_NODE, BUSY_NODE, ANY_NODE))
        lasts = random.choice((1, 8, 30, 50, 90, 240)) * SECOND
        found.append(Attack(at=at, harm=harm, who=who, lasts=lasts))


def _drawn_attacks(random: Random, profile: Profile, trouble: Millis) -> list[Attack]:
    found: list[Attack] = []
    at = 0
    every = random.choice((40, 90, 180)) * SECOND
    while True:
        at += 1 + int(random.expovariate(1 / every))
        if at >= trouble:
            return found
        match profile:
            case Profile.HUNTER:
                found.append(_hunting(random, at))
            case Profile.BREAKING:
                found.append(_breaking(random, at))
            case _:
                found.append(_any_harm(random, at))


def _any_harm(random: Random, at: Millis) -> Attack:
    harm = random.choice(HARMS)
    who = random.choice((*CONTROLLERS, NODES) if harm is Harm.CUT else CONTROLLERS)
    return Attack(
        at=at, harm=harm, who=who, lasts=_span(random, harm), amount=_amount(random, harm)
    )


def _hunting(random: Random, at: Millis) -> Attack:
    """Draw an attack, mostly on the leader; half of the time in the middle of a store call."""
    if random.random() < 0.5:
        harm = random.choice((Harm.PAUSE, Harm.PAUSE, Harm.CRASH, Harm.CUT, Harm.CUT_ANSWERS))
        who = random.choice((LEADER, LEADER, LEADER, ANY))
        point = random.choice(random.choice((COMMIT, POINTS)))
        lasts = _span(random, harm)
        if harm is Harm.PAUSE and random.random() < 0.7:
            lasts = random.choice(LONGER) * SECOND
        return Attack(at=at, harm=harm, who=who, lasts=lasts, point=point)
    harm = random.choice(HARMS)
    who = random.choice((LEADER, LEADER, STANDBY))
    amount = _amount(random, harm)
    if harm is Harm.DRIFT:  # a slow holder and fast contenders: the limit case of the margins
        amount = -PPM_MAX if who == LEADER else PPM_MAX
    return Attack(at=at, harm=harm, who=who, lasts=_span(random, harm), amount=amount)


def _breaking(random: Random, at: Millis) -> Attack:
    """Draw an attack that mostly makes a clock run at about half or twice its rate. The margins of
    the tenure do not allow that much."""
    who = random.choice((LEADER, STANDBY))
    if random.random() < 0.6:
        amount = -600_000 if who == LEADER else 900_000
        lasts = random.choice((30, 60)) * SECOND
        return Attack(at=at, harm=Harm.DRIFT, who=who, lasts=lasts, amount=amount)
    return _hunting(random, at)


def _span(random: Random, harm: Harm) -> Millis:
    match harm:
        case Harm.CRASH | Harm.STOP:
            return random.choice((50, SECOND, 20 * SECOND))
        case Harm.TWIN:
            return random.choice((5, 40)) * SECOND
        case Harm.DRIFT:
            return random.choice((30, 90)) * SECOND
        case _:
            return random.choice((1, 4, 8, 12, 17, 30, 60)) * SECOND


def _amount(random: Random, harm: Harm) -> int:
    if harm is Harm.DRIFT:
        return random.choice((-PPM_MAX, PPM_MAX, 20_000))
    return random.choice((-20, -4, 4, 20)) * SECOND if harm is Harm.JUMP else 0
