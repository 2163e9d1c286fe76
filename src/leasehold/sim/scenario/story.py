"""The records of a scenario: initial state, actions over time, and expectations.

Created by `parse`, executed by `runner` and `act`, checked by `expect`. A record that may cause a
failure later keeps its line number. The records have no behaviour, except that they can be shown.
"""

from enum import StrEnum
from fractions import Fraction

from leasehold.core.facts import Record
from leasehold.core.units import HOUR, Instant, Millis, format_span
from leasehold.shell.config.config import Config
from leasehold.shell.config.fleetfile import FleetRow, node_rows
from leasehold.sim.machines import NodeIs, Work
from leasehold.sim.scenario.trouble import Attack, Trouble

Spec = dict[str, object]


class Unit(StrEnum):
    COUNT = "count"
    HOURS = "hours"  # GPU-hours
    SPAN = "span"  # milliseconds since the start

    def show(self, number: Fraction) -> str:
        if self is Unit.SPAN and number.denominator == 1:
            return format_span(int(number))
        if number.denominator == 1:
            return str(number.numerator)
        return f"{float(number):.6g} ({number})"


# Expected values.


class Number(Record):
    """An expected number: exact, or between two inclusive bounds."""

    low: Fraction | None
    high: Fraction | None
    unit: Unit

    def holds(self, got: Fraction) -> bool:
        return (self.low is None or self.low <= got) and (self.high is None or got <= self.high)

    def __str__(self) -> str:
        if self.low is not None and self.low == self.high:
            return self.unit.show(self.low)
        bounds = (("at least", self.low), ("at most", self.high))
        return " and ".join(f"{say} {self.unit.show(at)}" for say, at in bounds if at is not None)


class Word(Record):
    text: str

    def __str__(self) -> str:
        return self.text


class Words(Record):
    """Texts that must all occur in a message."""

    texts: tuple[str, ...]

    def __str__(self) -> str:
        return " and ".join(repr(text) for text in self.texts)


class Truth(Record):
    value: bool

    def __str__(self) -> str:
        return "true" if self.value else "false"


class Names(Record):
    """An expected list of names. (`Groups` is an expected list of numbers.)"""

    names: tuple[str, ...]

    def __str__(self) -> str:
        return f"[{', '.join(self.names)}]"


class Groups(Record):
    numbers: tuple[int, ...]

    def __str__(self) -> str:
        return str(list(self.numbers))


class Walk(Record):
    """The envelopes that were asked to pay, in order. Each has the number of GPUs that it pays for,
    or the reason why it pays for none."""

    steps: tuple[tuple[str, int | str], ...]

    def __str__(self) -> str:
        return "[" + ", ".join(f"[{name}, {verdict}]" for name, verdict in self.steps) + "]"


class Odds(Record):
    """The expected probability, in percent, that each of these runs is drawn."""

    by_run: tuple[tuple[str, Number], ...]

    def __str__(self) -> str:
        return "{" + ", ".join(f"{run}: {percent}" for run, percent in self.by_run) + "}"


class ShrunkFrom(Record):
    """For each run, the numbers of the groups that were taken from it, in the order in which they
    were taken."""

    by_run: tuple[tuple[str, Groups], ...]

    def __str__(self) -> str:
        return "{" + ", ".join(f"{run}: {groups}" for run, groups in self.by_run) + "}"


Want = Number | Word | Words | Truth | Names | Groups | Walk | Odds | ShrunkFrom


class ExpectedField(Record):
    name: str
    want: Want
    line: int


# Expectations, one record per subject.


class Expectation(Record, kw_only=True):
    line: int
    claims: tuple[ExpectedField, ...] = ()

    @property
    def subject(self) -> str:
        raise NotImplementedError


class RunIs(Expectation):
    run: str

    @property
    def subject(self) -> str:
        return f"run {self.run}"


class RunsAre(Expectation):
    """An expectation about several runs: how many of them have this `phase` and `because`."""

    runs: tuple[str, ...]

    @property
    def subject(self) -> str:
        return f"runs [{', '.join(self.runs)}]"


class LeaseFilter(Record):
    run: str | None = None
    group: int | None = None
    pod: int | None = None
    node: str | None = None
    owner: str | None = None
    payer: str | None = None
    role: str | None = None
    attempt: int | None = None
    open: bool | None = None
    opened: str | None = None
    closed: str | None = None

    def __str__(self) -> str:
        said = ((name, getattr(self, name)) for name in self.__struct_fields__)
        return ", ".join(
            f"{name} {str(value).lower() if isinstance(value, bool) else value}"
            for name, value in said
            if value is not None
        )


class LeasesAre(Expectation):
    which: LeaseFilter

    @property
    def subject(self) -> str:
        return f"leases {{{self.which}}}"


class EnvelopeIs(Expectation):
    envelope: str

    @property
    def subject(self) -> str:
        return f"envelope {self.envelope}"


class ReservationIs(Expectation):
    run: str

    @property
    def subject(self) -> str:
        return f"reservation {self.run}"


class ResolutionIs(Expectation):
    made_for: str  # a run, an envelope or an aggregate

    @property
    def subject(self) -> str:
        return f"resolution {self.made_for}"


class NodeShows(Expectation):
    node: str

    @property
    def subject(self) -> str:
        return f"node {self.node}"


class CoverIs(Expectation):
    run: str

    @property
    def subject(self) -> str:
        return f"cover {self.run}"


class LedgerIsOk(Expectation):
    @property
    def subject(self) -> str:
        return "ledger"


class AuditIsOk(Expectation):
    @property
    def subject(self) -> str:
        return "audit"


# Actions, one record each.


class Submit(Record):
    runs: tuple[tuple[str, Spec], ...]
    works: tuple[Work, ...] = ()
    refused: tuple[str, ...] | None = None

    def __str__(self) -> str:
        return f"submit {', '.join(name for name, _ in self.runs)}"


class PutBudgets(Record):
    budgets: tuple[tuple[str, Spec], ...]
    refused: tuple[str, ...] | None = None

    def __str__(self) -> str:
        return f"budget {', '.join(name for name, _ in self.budgets)}"


class EditRun(Record):
    run: str
    patch: Spec
    refused: tuple[str, ...] | None = None

    def __str__(self) -> str:
        return f"edit run {self.run}"


class EditEnvelope(Record):
    envelope: str
    patch: Spec
    refused: tuple[str, ...] | None = None

    def __str__(self) -> str:
        return f"edit envelope {self.envelope}: {', '.join(self.patch)}"


class Cancel(Record):
    run: str

    def __str__(self) -> str:
        return f"cancel {self.run}"


class Deletion(Record):
    kind: str  # budget | run | node
    name: str

    def __str__(self) -> str:
        return f"delete {self.kind} {self.name}"


class SetNode(Record):
    name: str
    state: NodeIs

    def __str__(self) -> str:
        return f"node {self.name} is {self.state}"


class SetGpus(Record):
    """Set how many GPUs of a node work. If `exit_code` is set, processes on GPUs that break exit
    with it; otherwise they continue."""

    node: str
    left: int
    exit_code: int | None = None

    def __str__(self) -> str:
        ended = "" if self.exit_code is None else f", what ran there exits with {self.exit_code}"
        return f"node {self.node} has {self.left} GPUs that work{ended}"


class SetForeign(Record):
    node: str
    gpus: int

    def __str__(self) -> str:
        return f"foreign pods hold {self.gpus} GPUs of {self.node}"


class PodDoes(Record):
    """End a pod with `exit_code`. If `exit_code` is None, make the pod ignore signals (`stuck`), or
    react to them again."""

    run: str
    group: int
    pod: int
    exit_code: int | None
    stuck: bool = False

    def __str__(self) -> str:
        does = "sticks" if self.stuck else "no longer sticks"
        if self.exit_code is not None:
            does = f"exits with {self.exit_code}"
        return f"pod {self.pod} of group {self.group} of {self.run} {does}"


class FailBinds(Record):
    count: int

    def __str__(self) -> str:
        return f"the next {self.count} starts will be rejected"


class RestartController(Record):
    def __str__(self) -> str:
        return "restart the controller"


class Expect(Record):
    expectations: tuple[Expectation, ...]

    def __str__(self) -> str:
        return f"expect {len(self.expectations)}"


Action = (
    Submit
    | PutBudgets
    | EditRun
    | EditEnvelope
    | Cancel
    | Deletion
    | SetNode
    | SetGpus
    | SetForeign
    | PodDoes
    | FailBinds
    | RestartController
    | Attack
    | Expect
)


class Step(Record):
    at: Millis  # since the start
    line: int
    action: Action


class Story(Record):
    file: str
    title: str
    start: Instant
    config: Config
    fleet: tuple[FleetRow, ...]
    budgets: tuple[tuple[str, Spec], ...]
    steps: tuple[Step, ...]
    trouble: Trouble | None = None

    def node_rows(self) -> list[tuple[str, FleetRow]]:
        """Return the name of every node, with the row of the fleet that describes the node. If two
        rows are of the same domain, the second one continues the numbers of the first.

        Example: two rows of domain `a` with 2 nodes each give `a-00`, `a-01`, `a-02`, `a-03`.
        """
        return node_rows(self.fleet)


def gpu_hours(gpu_ms: int) -> Fraction:
    return Fraction(gpu_ms, HOUR)
