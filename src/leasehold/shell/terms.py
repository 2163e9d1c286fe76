"""On what terms a control plane decides: what it is told once, and knows for as long as it runs."""

from dataclasses import dataclass, field

from leasehold.core.objects.node import Labels
from leasehold.core.policy import Policy
from leasehold.core.units import Millis
from leasehold.shell.tryouts import Rehearse


@dataclass(frozen=True, slots=True)
class Terms:
    """`is_shared`: others may decide on the same store. `is_strict`: a defect stops it, as it must
    in a simulation. `gather`: how long to wait for more news before a turn, at least. A turn costs
    much the same for one change as for twenty: a busy server decides less often and gets more done.
    `rehearse`: pods as the store would make them, or why it would not."""

    policy: Policy
    lottery_key: bytes
    labels: Labels = field(default_factory=Labels)
    is_shared: bool = False
    is_strict: bool = False
    gather: Millis = 0
    rehearse: Rehearse | None = None
