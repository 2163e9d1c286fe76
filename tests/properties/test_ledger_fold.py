"""The ledger's fold against a list with three columns: start, end, GPUs."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.properties.worlds import NOW, a_budget, a_lease, a_node, a_run, a_world, an_envelope

from leasehold.control.audit import audit
from leasehold.control.views.numbers import spent_by
from leasehold.core.facts import (
    Cause,
    Closed,
    Closure,
    ClosureReason,
    Ending,
    Lease,
    Relation,
    Role,
)
from leasehold.core.units import HOUR
from leasehold.core.world.invariants import check_all

RUNS = ("one", "two", "three")
PAYERS = ("n/t/e", "n/t/f")
SPANS = {"one": None, "two": 5 * HOUR, "three": 50 * HOUR}
reasons = st.sampled_from(
    (Closed.COMPLETED, Closed.FAIL, Closed.SHRINK, Closed.NODE_FAILURE, Closed.REFINANCED)
)


class LedgerAgainstAList(RuleBasedStateMachine):
    """Any history of opening, marking, closing and waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.now = NOW
        self.world = a_world(
            [a_node(f"n{i}", gpus=8) for i in range(4)],
            [a_budget("t", an_envelope(PAYERS[0], "t"), an_envelope(PAYERS[1], "t"))],
        )
        for name in RUNS:
            self.world.put_run(a_run(name, groups=4, span=SPANS[name]))
        self.rows: dict[str, list[int | None]] = {}  # lease -> start, end, GPUs
        self.facts: dict[str, Lease] = {}
        self.marked: dict[str, str] = {}
        self.batch = 0

    @rule(
        run=st.sampled_from(RUNS),
        payer=st.sampled_from(PAYERS),
        node=st.integers(0, 3),
        gpus=st.integers(1, 4),
        lent=st.booleans(),
    )
    def open(self, run: str, payer: str, node: int, gpus: int, lent: bool) -> None:
        taken = {slot for name in self.still_open() if self.facts[name].node == f"n{node}"
                 for slot in self.facts[name].slots}  # fmt: skip
        slots = [slot for slot in range(8) if slot not in taken][:gpus]
        if slots:
            self.batch += 1
            lease = a_lease(
                self.world.runs[f"uid-{run}"], f"n{node}", slots, batch=self.batch, index=0,
                pod=self.batch, payer=payer, start=self.now,
                relation=Relation.BORROWED if lent else Relation.OWNED,
                role=Role.SPARE if gpus == 1 else Role.ACTIVE,
            )  # fmt: skip
            self.world.fold_open(lease)
            self.rows[lease.name] = [self.now, None, len(slots)]
            self.facts[lease.name] = lease

    def still_open(self) -> list[str]:
        return [name for name, row in self.rows.items() if row[1] is None]

    @rule(ms=st.sampled_from((1, 2, 8, 1_234_567, HOUR, 30 * HOUR)))
    def wait(self, ms: int) -> None:
        self.now += ms

    @precondition(lambda self: bool(set(self.still_open()) - set(self.marked)))
    @rule(pick=st.integers(0, 99), reason=reasons, grace=st.integers(0, 60_000))
    def mark(self, pick: int, reason: Closed, grace: int) -> None:
        names = sorted(set(self.still_open()) - set(self.marked))
        name = names[pick % len(names)]
        self.batch += 1
        why, deadline = ClosureReason(reason=reason), self.now + grace
        ending = Ending(why=why, deadline=deadline, batch=self.batch, at=self.now)
        self.world.fold_ending(name, ending)
        self.marked[name] = reason

    @precondition(lambda self: bool(self.still_open()))
    @rule(pick=st.integers(0, 99), reason=reasons, early=st.sampled_from((0, 0, 1, HOUR)))
    def close(self, pick: int, reason: Closed, early: int) -> None:
        names = sorted(self.still_open())
        name = names[pick % len(names)]
        start = self.rows[name][0]
        assert start is not None
        end = max(start, self.now - early)
        said = self.marked.get(name, reason)
        self.batch += 1
        cause = Cause.EXIT if said == Closed.FAIL else None
        done = Closure(why=ClosureReason(reason=said), at=end, cause=cause, batch=self.batch)
        self.world.fold_close(name, done)
        self.rows[name][1] = end

    def spent(self, name: str) -> int:
        start, end, gpus = self.rows[name]
        assert start is not None
        assert gpus is not None
        return gpus * ((self.now if end is None else end) - start)

    @invariant()
    def every_gpu_second_has_one_payer_and_one_run(self) -> None:
        for payer in PAYERS:
            mine = [name for name in self.rows if self.facts[name].payer == payer]
            lent = [name for name in mine if self.facts[name].relation is Relation.BORROWED]
            account = self.world.accounts.of(payer)
            assert account.used_ms(self.now) == sum(map(self.spent, mine))
            assert account.lent_used_ms(self.now) == sum(map(self.spent, lent))
        for run in RUNS:
            mine = [name for name in self.rows if self.facts[name].run == run]
            spent = spent_by(self.world, f"uid-{run}", self.now)
            assert sum(spent.values()) == sum(map(self.spent, mine))

    @invariant()
    def what_is_committed_is_what_open_leases_may_still_use(self) -> None:
        for payer in PAYERS:
            expected = 0
            for name in self.still_open():
                lease = self.facts[name]
                span = SPANS[lease.run]
                begun = min(each.start for each in self.facts.values() if each.run == lease.run)
                end = self.now + 24 * HOUR if span is None else begun + span
                if lease.payer == payer and name not in self.marked:
                    expected += lease.gpus * max(0, end - self.now)
            account = self.world.accounts.of(payer)
            committed = account.committed_ms(self.now, until=1 << 62, horizon=24 * HOUR)
            assert committed[0] == expected

    @invariant()
    def a_rebuilt_world_and_the_audit_agree(self) -> None:
        assert check_all(self.world, self.now) == []
        balances = [said for said in audit(self.world, [], self.now) if "pod" not in said]
        assert balances == []


LedgerAgainstAList.TestCase.settings = settings(max_examples=40, stateful_step_count=25)
TestTheLedgersFold = LedgerAgainstAList.TestCase
