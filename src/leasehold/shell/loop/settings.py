"""The settings of a control plane, fixed for as long as it runs."""

from dataclasses import dataclass, field

from leasehold.core.objects.node import Labels
from leasehold.core.policy import Policy
from leasehold.core.units import Millis
from leasehold.shell.loop.dry_runs import Rehearse


@dataclass(frozen=True, slots=True)
class PlaneSettings:
    """The settings of one control plane.

    `is_shared`: other processes may lead on the same store. `is_strict`: a defect stops the
    process, as a simulation requires. `gather`: minimum pause before a turn, to collect events. A
    turn costs about the same for one change as for twenty, so a busy server gets more done with
    fewer turns. `rehearse`: returns pods as the store would create them, or why it would refuse
    them.
    """

    policy: Policy
    lottery_key: bytes
    labels: Labels = field(default_factory=Labels)
    is_shared: bool = False
    is_strict: bool = False
    gather: Millis = 0
    rehearse: Rehearse | None = None
