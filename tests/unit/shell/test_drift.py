"""A disagreement that lasts a moment is not drift; one that continues is reported once."""

from tests.unit.shell.plant import Plant

from leasehold.core.facts import Lease, Opened, Relation, Role
from leasehold.core.units import HOUR, MINUTE
from leasehold.core.world.accounts import UNLIMITED
from leasehold.shell.observe.drift import DriftWatch


class Watched:
    def __init__(self) -> None:
        self.plant = Plant()
        self.told: list[tuple[str, str]] = []
        watch = DriftWatch(
            self.plant.user.clock,
            lambda: self.plant.controller.world,
            lambda kind, words: self.told.append((kind, words)),
        )
        self.plant.user.tasks.spawn("drift", watch.run())


def test_runs_without_drift_cause_no_report() -> None:
    watched = Watched()
    for index in range(3):
        watched.plant.submit(f"a/run{index}", lasts=20 * MINUTE)
        watched.plant.wait(17 * MINUTE)
    watched.plant.wait(2 * HOUR)
    assert watched.told == []


def test_wrong_balance_is_reported_once() -> None:
    watched = Watched()
    watched.plant.submit("a/run")
    watched.plant.wait(MINUTE)
    ghost = Lease(
        name="ghost-1-0", owner="t:a", namespace="a", run="ghost", uid="u", attempt=1, group=0,
        index=0, node="n0", slots=(0,), role=Role.ACTIVE, start=watched.plant.kernel.now,
        payer="a/a/e", payer_owner="t:a", relation=Relation.OWNED, reason=Opened.START, batch=1,
    )  # fmt: skip
    watched.plant.world.accounts.add(ghost, UNLIMITED)  # as after a defect
    watched.plant.wait(HOUR)
    kinds = [kind for kind, _ in watched.told]
    assert kinds.count("balance") >= 1
    assert any("a/a/e pays for 8 GPUs, its account says 9" in words for _, words in watched.told)
    assert len([words for _, words in watched.told if "pays for 8 GPUs" in words]) == 1
