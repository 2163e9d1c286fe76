"""A keeper holds while it can be sure, reports in time when it cannot, and hands over at once."""

import re
from collections.abc import Awaitable, Callable

import pytest

from leasehold.adapters.memory.store import MemoryStore
from leasehold.core.ledger.head import FORMAT, check_format
from leasehold.core.objects.tenure import Holder
from leasehold.core.units import SECOND, Millis
from leasehold.ports.tenure import BadMargins, Margins, Tenure, margin_problems
from leasehold.shell.leadership.keeper import Epoch, Keeper
from leasehold.shell.leadership.tenure import StoreTenures
from leasehold.sim.kernel import Kernel
from leasehold.sim.network import Network, NetworkedStore

KEY = "main"
MARGINS = Margins()


class Office:
    """Records each message of the keeper and its time."""

    def __init__(self, now: Callable[[], Millis]) -> None:
        self._now = now
        self.said: list[tuple[Millis, str]] = []

    def gained(self, tenure: Tenure) -> None:
        self.said.append((self._now(), f"gained {tenure.epoch}"))

    def unsure(self) -> None:
        self.said.append((self._now(), "unsure"))

    def sure(self) -> None:
        self.said.append((self._now(), "sure"))

    def lost(self, why: str) -> None:
        assert why
        self.said.append((self._now(), "lost"))


class World:
    def __init__(self, names: str = "abc", **rates: float) -> None:
        self.kernel = Kernel(0)
        server = self.kernel.process("server")
        self.store = MemoryStore(server.tasks, server.clock)
        self.network = Network(self.kernel, 1, {k.replace("_", "-"): v for k, v in rates.items()})
        self.offices: dict[str, Office] = {}
        self.keepers: dict[str, Keeper] = {}
        for name in names:
            self.start(name)

    def start(
        self,
        name: str,
        epoch: Epoch | None = None,
        *,
        silence: Callable[[], Millis] = lambda: 0,
        let_go: Callable[[], Awaitable[bool]] | None = None,
    ) -> None:
        process = self.kernel.process(name)
        store = NetworkedStore(self.store, process, self.network)
        self.offices[name] = Office(lambda: self.kernel.now)
        self.keepers[name] = Keeper(
            StoreTenures(store, process.clock, process.tasks, margins=MARGINS),
            process.clock,
            process.tasks,
            key=KEY,
            holder=Holder(name=name, nonce=str(process.incarnation)),
            office=self.offices[name],
            epoch=epoch or _no_ledger,
            silence=silence,
            has_let_go=let_go or _at_once,
        )
        process.tasks.spawn("keeper", self.keepers[name].run())

    def wait(self, ms: Millis) -> None:
        """Advance timer by timer, and check that at most one keeper believes that it holds."""
        until = self.kernel.now + ms
        while self.kernel.now < until:
            due = self.kernel.next_timer()
            step = until if due is None else max(self.kernel.now, min(due, until))
            self.kernel.advance_to(step)
            assert len(self.holders()) <= 1, self.holders()

    def holders(self) -> list[str]:
        return [name for name, keeper in self.keepers.items() if keeper.is_valid]

    def the_holder(self) -> str:
        (name,) = self.holders()
        return name

    def last(self, name: str) -> tuple[Millis, str]:
        return self.offices[name].said[-1]


async def _no_ledger() -> int:
    return 0


async def _at_once() -> bool:
    return True


def test_one_of_three_contenders_holds_and_the_others_know_it() -> None:
    world = World()
    world.wait(60 * SECOND)
    first = world.the_holder()
    assert world.offices[first].said == [(0, "gained 1")]
    standbys = [each for name, each in world.keepers.items() if name != first]
    assert [each.vacancy for each in standbys] == ["", ""]


def test_keeper_with_unknown_ledger_format_does_not_contend() -> None:
    world = World("")
    formats = [FORMAT + 1]

    async def epoch() -> int:
        check_format(formats[0])
        return 4

    world.start("a", epoch)
    world.wait(60 * SECOND)
    assert world.holders() == []
    assert f"format {FORMAT + 1}" in world.keepers["a"].trouble
    formats[0] = FORMAT
    world.wait(MARGINS.renew + MARGINS.take + SECOND)
    assert world.the_holder() == "a"
    assert world.keepers["a"].trouble == ""
    assert world.last("a")[1] == "gained 5"


def test_another_keeper_takes_over_after_the_holder_crashed() -> None:
    world = World()
    world.wait(20 * SECOND)
    first = world.the_holder()
    world.kernel.process(first).crash()
    del world.keepers[first]
    world.wait(MARGINS.take + SECOND)
    second = world.the_holder()
    at, said = world.last(second)
    assert said == "gained 2"
    assert at > 20 * SECOND + MARGINS.take - MARGINS.renew


def test_standbys_report_a_vacancy_before_they_may_take_over() -> None:
    world = World()
    world.wait(20 * SECOND)
    first = world.the_holder()
    world.kernel.process(first).crash()
    del world.keepers[first]
    world.wait(MARGINS.hold + MARGINS.renew)
    assert world.holders() == []
    for keeper in world.keepers.values():
        assert re.fullmatch(r"no process has been known to hold it for 1\d s", keeper.vacancy)
    world.wait(MARGINS.take)
    (standby,) = [each for name, each in world.keepers.items() if name != world.the_holder()]
    assert standby.vacancy == ""


def test_three_disconnected_keepers_know_no_holder() -> None:
    world = World()
    world.wait(20 * SECOND)
    first = world.the_holder()
    for name in world.keepers:
        world.network.cut(name)
    world.wait(MARGINS.soft_stop)
    assert world.keepers[first].is_unsure
    world.wait(MARGINS.hold)
    assert world.holders() == []
    for keeper in world.keepers.values():
        assert re.fullmatch(r"the store has not answered for \d+ s", keeper.vacancy)
        assert not keeper.is_unsure
    for name in world.keepers:
        world.network.heal(name)
    world.wait(MARGINS.take + MARGINS.renew)
    standbys = [each for name, each in world.keepers.items() if name != world.the_holder()]
    assert [each.vacancy for each in standbys] == ["", ""]


def test_clean_stop_hands_over_at_once() -> None:
    world = World()
    world.wait(20 * SECOND)
    first = world.the_holder()
    world.keepers[first].stop()
    world.wait(1)
    assert world.last(first) == (20 * SECOND, "lost")
    assert world.last(world.the_holder()) == (20 * SECOND, "gained 2")
    world.wait(30 * SECOND)
    assert world.the_holder() != first


def test_stop_while_disconnected_hands_over_once_reconnected() -> None:
    """A busy server does not answer in time; the tenure need not run out for that."""
    world = World()
    world.wait(10 * SECOND)
    first = world.the_holder()
    world.network.cut(first)
    world.keepers[first].stop()
    world.wait(3 * SECOND)
    assert world.holders() == []
    world.network.heal(first)
    world.wait(3 * SECOND)
    assert world.the_holder() != first
    assert world.keepers[first].is_stopped


def test_stop_while_disconnected_ends_even_if_never_answered() -> None:
    world = World()
    world.wait(10 * SECOND)
    first = world.the_holder()
    world.network.cut(first)
    world.keepers[first].stop()
    world.wait(MARGINS.hold)
    assert world.keepers[first].is_stopped
    world.wait(20 * SECOND)
    assert world.the_holder() != first


def test_leader_with_a_hung_decision_loop_loses_tenure_until_it_responds() -> None:
    world, hung = World(""), [0]

    async def never() -> bool:
        return not hung[0]

    world.start("a", silence=lambda: world.kernel.now - hung[0] if hung[0] else 0, let_go=never)
    world.wait(10 * SECOND)
    world.start("b")
    hung[0] = world.kernel.now
    world.wait(MARGINS.stall - SECOND)
    assert world.the_holder() == "a", "a long decision costs nobody the tenure"

    world.wait(MARGINS.renew + SECOND)
    lost, said = world.last("a")
    world.wait(MARGINS.take + 2 * MARGINS.renew)

    assert said == "lost"
    assert world.the_holder() == "b"
    gained, said = world.last("b")
    assert said == "gained 2"
    assert gained - lost > MARGINS.take - 2 * MARGINS.renew, "nothing was given back"
    world.keepers["b"].stop()
    world.wait(60 * SECOND)
    assert world.holders() == [], "an office that hangs contends for nothing"
    hung[0] = 0
    world.wait(MARGINS.renew + SECOND)
    assert world.the_holder() == "a"


def test_disconnected_holder_stops_before_another_begins() -> None:
    world = World()
    world.wait(20 * SECOND)
    first = world.the_holder()
    world.network.cut(first)
    world.wait(60 * SECOND)
    (_, _), (soft, unsure), (hard, lost) = world.offices[first].said
    assert (unsure, lost) == ("unsure", "lost")
    gained, said = world.last(world.the_holder())
    assert said == "gained 2"
    assert soft < hard < gained
    assert hard - soft == MARGINS.hold - MARGINS.soft_stop
    world.network.heal(first)
    world.wait(20 * SECOND)
    assert len(world.offices[first].said) == 3


def test_short_disconnection_causes_only_a_soft_stop() -> None:
    world = World()
    world.wait(20 * SECOND)
    first = world.the_holder()
    world.network.cut(first)
    world.wait(6 * SECOND)
    world.network.heal(first)
    world.wait(30 * SECOND)
    assert [said for _, said in world.offices[first].said] == ["gained 1", "unsure", "sure"]


def test_holder_whose_answers_are_lost_loses_the_tenure() -> None:
    world = World()
    world.wait(20 * SECOND)
    first = world.the_holder()
    world.network.cut(first, requests=False)
    world.wait(11 * SECOND)
    assert [said for _, said in world.offices[first].said] == ["gained 1", "unsure", "lost"]
    assert world.holders() == []


def test_paused_holder_knows_on_resuming_that_it_has_lost() -> None:
    world = World()
    world.wait(20 * SECOND)
    first = world.the_holder()
    world.kernel.process(first).pause()
    world.wait(20 * SECOND)
    assert not world.keepers[first].is_valid
    second = world.the_holder()
    world.kernel.process(first).resume()
    world.wait(SECOND)
    assert world.last(first)[1] == "lost"
    assert world.the_holder() == second


def test_restarted_holder_waits_before_it_takes_over() -> None:
    world = World("a")
    world.wait(SECOND)
    world.kernel.process("a").crash()
    world.start("a")
    world.wait(MARGINS.take - 1)
    assert world.holders() == []
    world.wait(SECOND)
    assert world.last("a")[1] == "gained 2"


def test_duplicated_requests_count_once() -> None:
    world = World(net_copy=1.0)
    world.wait(60 * SECOND)
    assert world.network.effects["net-copy"] > 20
    assert [said for _, said in world.offices[world.the_holder()].said] == ["gained 1"]


@pytest.mark.parametrize("fault", ["net_drop", "net_delay", "net_spike"])
def test_bad_network_never_makes_two_holders(fault: str) -> None:
    world = World(**{fault: 0.3})
    world.wait(600 * SECOND)
    epochs = [
        int(said.split()[1])
        for office in world.offices.values()
        for _, said in office.said
        if said.startswith("gained")
    ]
    assert len(epochs) == len(set(epochs)) >= 1


def test_default_margins_never_allow_two_holders_at_once() -> None:
    assert margin_problems(Margins()) == []


@pytest.mark.parametrize(
    ("margins", "said"),
    [
        (Margins(hold=10_001), "tenure.hold 10s1ms: hold must be at most take * (1 - drift) / (1 + "
                               "drift) = 15s * 0.80 / 1.20 = 10s; use at most that"),
        (Margins(take=12_000), "tenure.hold 10s: hold must be at most take * (1 - drift) / (1 + "
                               "drift) = 12s * 0.80 / 1.20 = 8s; use at most that"),
        (Margins(soft_stop=10_000), "tenure.softStop 10s: use less than tenure.hold, 10s"),
        (Margins(renew=7_000), "tenure.renew 7s: use less than tenure.softStop, 7s"),
        (Margins(timeout=4_000), "tenure.timeout 4s: one renewal that is not answered must not "
                                 "stop anybody: renew + timeout = 3s + 4s = 7s must be less than "
                                 "softStop, 7s"),
    ],
)  # fmt: skip
def test_unsafe_margins_are_refused_with_the_calculation(margins: Margins, said: str) -> None:
    process = Kernel(0).process("a")
    store = MemoryStore(process.tasks, process.clock)
    with pytest.raises(BadMargins) as refused:
        StoreTenures(store, process.clock, process.tasks, margins=margins)
    assert str(refused.value) == said
