"""shelter — whether more groups of a sweep would shelter it from cuts that those ahead count on.

At its minimum a sweep is drawn whole; above that only its highest groups are. So one group more may
keep the lowest where they are, though it sits where it is in nobody's way itself. Asked before
groups of a sweep start; works under a mark and changes nothing.
"""

from collections.abc import Sequence

from leasehold.core.decisions.agenda import Agenda
from leasehold.core.decisions.resolve import let_go
from leasehold.core.decisions.room_ahead import RoomAhead
from leasehold.core.facts import Lease, Run
from leasehold.core.units import FOREVER, Instant
from leasehold.core.world.supposed import suppose
from leasehold.core.world.width import minimum_gpus, own_domains, standing_groups
from leasehold.core.world.world import World


def may_shelter(world: World, agenda: Agenda, run: Run, groups: tuple[int, ...]) -> bool:
    """Whether these groups would bring it above its minimum while somebody needs cuts. An elastic
    one gives up all above that before any lot is drawn."""
    if run.spec.malleable is not None or not agenda.has_rooms:
        return False
    standing = {*standing_groups(world, run.uid), *groups}
    return len(standing) * run.spec.group_gpus > minimum_gpus(run.spec)


def leaves_room(
    world: World, agenda: Agenda, run: Run, leases: Sequence[Lease], *, now: Instant
) -> bool:
    """Whether everybody ahead who needs cuts finds room also when the run has these leases, too, or
    would find none without them, either."""
    end = min(FOREVER, now + (run.spec.max_duration or FOREVER))
    ahead = RoomAhead(world, agenda, uid="", start=now, end=end, now=now)
    domains = {world.fleet.nodes[lease.node].node.domain for lease in leases}
    domains.update(own_domains(world, run.uid))
    mark = world.what_if.mark()
    over = let_go(world, now=now)
    inner = world.what_if.mark()
    suppose(world, leases)
    lost = ahead.left_out(domains, over)
    world.what_if.undo(inner)
    answer = not lost or lost <= ahead.left_out(domains, over)
    world.what_if.undo(mark)
    return answer
