"""The settings that a seed draws beside its story: of silent nodes, and of who was not updated yet.

Drawn by `plan`, each from a stream of its own.
"""

import json
from random import Random

from leasehold.sim.scenario.trouble import Rollout

CONFIG = "config: "
AFTER = "nodeFailure.after"
# At least 36 s: how long a node goes on, widened for clocks that drift (`shell.config`).
SPANS = ("36s", "36s", "1m", "5m")
# What may be set otherwise for a while without anybody's promise being another one.
OTHERWISE: dict[str, tuple[object, ...]] = {
    "activationLead": ("0s", "1m", "2h"),
    "resolver.minTenure": ("0s", "10m", "4h"),
    "overdraft.grace": ("0s", "5m", "1h"),
    "reservation.depthPerOwner": (1, 3),
    "reservation.maxWait": ("1h",),
    "resize.interval": ("0s", "1m"),
    "swap.settle": ("0s", "2m"),
    "bind.timeout": ("1m", "5m"),
    "bind.attempts": (1, 2),
    "retry.backoff": ("5s", "2m"),
    "drain.timeout": ("5m", "30m"),
    "forbidReciprocalLending": (True,),
}


def with_failing_silence(text: str, random: Random) -> str:
    """The same story, in which silence of some length may count as death, for all or one flavor."""
    if random.random() < 0.6:
        return text
    after: object = random.choice(SPANS)
    if random.random() < 0.3:
        after = {"H": after, "*": "off"}
    config = _config(text) | {AFTER: after}
    before, _, rest = text.partition(CONFIG)
    return f"{before}{CONFIG}{json.dumps(config)}\n{rest.partition(chr(10))[2]}"


def draw_rollout(random: Random, text: str) -> Rollout:
    """Half of the time all are alike. Only whoever waits longer may differ in what silence is: the
    nodes are what they are."""
    names = random.sample(sorted(OTHERWISE), random.randint(1, 3))
    settings = {name: random.choice(OTHERWISE[name]) for name in names}
    if AFTER in _config(text) and random.random() < 0.5:
        settings[AFTER] = random.choice(("off", "10m"))
    older = random.choice((0.0, 0.0, 0.0, 0.3, 0.5))
    outdated = random.choice((0.0, 0.0, 0.0, 0.1, 0.3))
    return Rollout(settings=settings if older else {}, older=older, outdated=outdated)


def _config(text: str) -> dict[str, object]:
    """Of a story that `stories` told: it stands on a line of its own."""
    line = next((line for line in text.split("\n") if line.startswith(CONFIG)), f"{CONFIG}{{}}")
    found: dict[str, object] = json.loads(line.removeprefix(CONFIG))
    return found
