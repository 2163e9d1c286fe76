"""Random histories of tenure operations, one after another, against a model of a few lines.

The model knows the true time and what each process has seen; it knows nothing of objects, versions
or writes. Clocks run at rates of their own within the drift that the margins allow for.
"""

from dataclasses import dataclass, field
from random import Random

import pytest
from tests.conformance.harness import MemoryHarness
from tests.conformance.offices import MARGINS, Contender

from leasehold.core.units import Millis
from leasehold.ports.tenure import (
    DRIFT_PERCENT,
    Expired,
    HeldByOther,
    NotHolder,
    Tenure,
    Unanswered,
)

SEEDS = range(40)
STEPS = 60


@dataclass
class Model:
    """`renewal` counts grants and renewals: after seeing the same one for long, take over."""

    holder: str = ""
    epoch: int = 0
    renewal: int = 0
    seen: dict[str, tuple[int, Millis]] = field(default_factory=dict)
    beliefs: dict[str, tuple[int, Millis]] = field(default_factory=dict)  # epoch, since

    def _is_valid(self, who: str, now: Millis) -> bool:
        return who in self.beliefs and now - self.beliefs[who][1] < MARGINS.hold

    def _grant(self, who: str, now: Millis, *, is_new: bool) -> str:
        self.epoch += is_new
        self.holder = who
        self.renewal += 1
        self.beliefs[who] = (self.epoch, now)
        return f"epoch {self.epoch}"

    def _look(self, who: str, now: Millis) -> None:
        if self.seen.get(who, (-1, 0))[0] != self.renewal:
            self.seen[who] = (self.renewal, now)

    def acquire(self, who: str, now: Millis) -> str:
        if self._is_valid(who, now):
            return f"epoch {self.beliefs[who][0]}"
        self._look(who, now)
        stood = now - self.seen[who][1]
        if self.holder in ("", who) or stood > MARGINS.take:
            return self._grant(who, now, is_new=True)
        return "held by other"

    def renew(self, who: str, epoch: int, now: Millis) -> str:
        if self.beliefs.get(who, (0, 0))[0] != epoch:
            return "not holder"
        if not self._is_valid(who, now):
            del self.beliefs[who]
            return "expired"
        if (self.holder, self.epoch) != (who, epoch):
            self._look(who, now)
            del self.beliefs[who]
            return "not holder"
        return self._grant(who, now, is_new=False)

    def release(self, who: str, epoch: int, now: Millis) -> str:
        self._look(who, now)
        if self.beliefs.get(who, (0, 0))[0] == epoch:
            del self.beliefs[who]
        if (self.holder, self.epoch) != (who, epoch):
            return "not holder"
        self.holder = ""
        self.renewal += 1
        return "free"

    def believers(self, now: dict[str, Millis]) -> set[str]:
        return {who for who in now if self._is_valid(who, now[who])}


def outcome_text(outcome: object) -> str:
    match outcome:
        case Tenure(epoch=epoch):
            return f"epoch {epoch}"
        case HeldByOther():
            return "held by other"
        case NotHolder():
            return "not holder"
        case Expired():
            return "expired"
        case None:
            return "free"
        case Unanswered():
            raise AssertionError("these stores always answer")
    raise AssertionError(outcome)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_history_of_tenure_agrees_with_the_model(harness: MemoryHarness, seed: int) -> None:
    random, store, model = Random(f"tenure/{seed}"), harness.store(), Model()
    drift = [-DRIFT_PERCENT, 0, DRIFT_PERCENT]
    everybody = {
        name: Contender(harness, store, name, start=random.randrange(10**9)) for name in "abc"
    }
    rates = {name: 100 + random.choice(drift) for name in everybody}
    held: dict[str, Tenure] = {}  # the last tenure of each contender
    for _ in range(STEPS):
        span = random.choice((0, 1, 900, 3_000, 6_600, 10_000, 15_000, 19_000))
        for name, each in everybody.items():
            each.clock.move(span * rates[name] // 100)
        who = random.choice(sorted(everybody))
        contender = everybody[who]
        now = contender.clock.monotonic()
        match random.choice(("acquire", "acquire", "renew", "release")), held.get(who):
            case "renew", Tenure() as tenure:
                got, expected = contender.renew(tenure), model.renew(who, tenure.epoch, now)
            case "release", Tenure() as tenure:
                got, expected = contender.release(tenure), model.release(who, tenure.epoch, now)
            case _:
                got, expected = contender.acquire(), model.acquire(who, now)
        assert outcome_text(got) == expected
        if isinstance(got, Tenure):
            held[who] = got
        believe = {name for name, each in held.items() if everybody[name].is_valid(each)}
        clocks = {name: each.clock.monotonic() for name, each in everybody.items()}
        assert believe == model.believers(clocks)
        assert len(believe) <= 1
