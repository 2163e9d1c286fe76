"""Resolution: the record of one preemption, with everything needed to repeat the decision (R7).

It names the cause, the beneficiary, what was given up, the draws of the lottery and their inputs.
"""

from enum import StrEnum

from leasehold.core.facts import Record, RunKey, Uid
from leasehold.core.units import Instant


class Bundle(Record):
    """What is preempted as a unit: a whole run, or one group of a `gang: Group` run (R4)."""

    namespace: str
    run: str
    uid: Uid
    group: int | None
    gpus: int
    is_owned: bool = False  # the owner's own envelopes pay for its part in the scope

    @property
    def run_key(self) -> RunKey:
        return f"{self.namespace}/{self.run}"

    @property
    def name(self) -> str:
        tail = "" if self.group is None else f"#{self.group}"
        return f"{self.namespace}/{self.run}{tail}"


class Draw(Record):
    """One draw of a lottery: the owner, and one of its bundles (R5)."""

    owner: str
    bundle: str
    gpus: int


class SweepWidth(Record):
    """The GPUs that decide which groups of a `gang: Group` run are bundles of their own (R4)."""

    run: RunKey
    width: int
    minimum: int
    group: int


class Lottery(Record):
    """A lottery: its seed with the inputs it follows from, the bundles by owner, and the draws
    (R7)."""

    seed: str
    subject: str
    instant: Instant
    ledger_digest: str
    nonce: str
    commitment: str
    announced_in: int
    conflict_set: tuple[tuple[str, tuple[Bundle, ...]], ...]  # owner, its bundles, in order
    draws: tuple[Draw, ...]
    sweeps: tuple[SweepWidth, ...] = ()
    owned_last: bool = False


class CutCause(StrEnum):
    """Why there was a preemption: for a waiting run, or to settle an overdraft."""

    RESERVATION = "Reservation"
    OVERDRAFT = "Overdraft"


class Resolution(Record):
    """What was preempted and for which run, with everything needed to repeat the decision."""

    name: str
    batch: int
    cause: CutCause
    subject: str
    beneficiary: RunKey  # "" for an overdraft
    beneficiary_uid: Uid
    flavor: str  # set together with `domains`; both are empty if the scope is an envelope (R1)
    domains: tuple[str, ...]
    envelope: str
    instant: Instant
    deficit: int
    spares: tuple[tuple[str, int], ...] = ()  # (lease, GPUs)
    shrunk: tuple[tuple[RunKey, int, int], ...] = ()  # (run, group, GPUs), in the order taken
    lottery: Lottery | None = None
    # (kind, name, GPUs) of victims that turned out not to be needed (R6)
    returned: tuple[tuple[str, str, int], ...] = ()
    victims: tuple[str, ...] = ()
    need: tuple[tuple[int, int], ...] = ()  # (group, GPUs)
    free: tuple[tuple[str, int], ...] = ()  # (node, GPUs)
    # (domain, GPUs by lottery, by shrinking, of spares), as R2 compares them
    losses: tuple[tuple[str, int, int, int], ...] = ()
