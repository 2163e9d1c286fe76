"""What a cut was: whom it was for, what was given up, who was drawn, and what that follows from.

Records, as in `facts`; everything that is needed to decide a cut again.
"""

from enum import StrEnum

from leasehold.core.facts import Record, RunKey, Uid
from leasehold.core.units import Instant


class Bundle(Record):
    """What dies together: a whole run, or one group of a `gang: Group` run."""

    namespace: str
    run: str
    uid: Uid
    group: int | None
    gpus: int
    is_owned: bool = False  # whether its owner's own envelopes pay for all of it

    @property
    def run_key(self) -> RunKey:
        return f"{self.namespace}/{self.run}"

    @property
    def name(self) -> str:
        tail = "" if self.group is None else f"#{self.group}"
        return f"{self.namespace}/{self.run}{tail}"


class Draw(Record):
    owner: str
    bundle: str
    gpus: int


class SweepWidth(Record):
    """What decides which groups of a `gang: Group` run are bundles of their own (R4), in GPUs."""

    run: RunKey
    width: int
    minimum: int
    group: int


class Lottery(Record):
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
    """What a Resolution was for."""

    RESERVATION = "Reservation"
    OVERDRAFT = "Overdraft"


class Resolution(Record):
    """What was cut, for whom, and everything needed to decide it again."""

    name: str
    batch: int
    cause: CutCause
    subject: str
    beneficiary: RunKey  # empty for an overdraft
    beneficiary_uid: Uid
    flavor: str  # with domains; both empty when the scope is an envelope
    domains: tuple[str, ...]
    envelope: str
    instant: Instant
    deficit: int
    spares: tuple[tuple[str, int], ...] = ()  # lease, GPUs
    shrunk: tuple[tuple[RunKey, int, int], ...] = ()  # run, group, GPUs, in the order taken
    lottery: Lottery | None = None
    returned: tuple[tuple[str, str, int], ...] = ()  # kind, name, GPUs
    victims: tuple[str, ...] = ()
    need: tuple[tuple[int, int], ...] = ()  # group, GPUs
    free: tuple[tuple[str, int], ...] = ()  # node, GPUs
    losses: tuple[tuple[str, int, int, int], ...] = ()  # domain, lottery, shrink, spares
