"""Draws settings that a plan adds to its story: about silent nodes, and about outdated controllers.

Called by `plan`, with one random stream for each of the two.
"""

import json
from random import Random

from leasehold.sim.scenario.trouble import Rollout

CONFIG = "config: "
AFTER = "nodeFailure.after"
# At least 36 s: the self-fencing time, widened for clock drift (`shell.config.config`).
SPANS = ("36s", "36s", "1m", "5m")
# Settings that may differ for a while without affecting any promise.
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
    """Return the story, sometimes with `nodeFailure.after` set: a silent node then counts as dead
    after some time. This applies to all flavors, or to one."""
    if random.random() < 0.6:
        return text
    after: object = random.choice(SPANS)
    if random.random() < 0.3:
        after = {"H": after, "*": "off"}
    config = _config(text) | {AFTER: after}
    before, _, rest = text.partition(CONFIG)
    return f"{before}{CONFIG}{json.dumps(config)}\n{rest.partition(chr(10))[2]}"


def draw_rollout(random: Random, text: str) -> Rollout:
    """Draw how starts of controllers differ. In three of five draws none has other settings, and in
    three of five none is outdated. `nodeFailure.after` may only become longer, because the nodes'
    own fencing time does not change."""
    names = random.sample(sorted(OTHERWISE), random.randint(1, 3))
    settings = {name: random.choice(OTHERWISE[name]) for name in names}
    if AFTER in _config(text) and random.random() < 0.5:
        settings[AFTER] = random.choice(("off", "10m"))
    older = random.choice((0.0, 0.0, 0.0, 0.3, 0.5))
    outdated = random.choice((0.0, 0.0, 0.0, 0.1, 0.3))
    return Rollout(settings=settings if older else {}, older=older, outdated=outdated)


def _config(text: str) -> dict[str, object]:
    """Return the `config` of a story that `stories` wrote, which is on one line."""
    line = next((line for line in text.split("\n") if line.startswith(CONFIG)), f"{CONFIG}{{}}")
    found: dict[str, object] = json.loads(line.removeprefix(CONFIG))
    return found
