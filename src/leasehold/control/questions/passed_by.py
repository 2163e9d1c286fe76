"""Which runs passed a waiting run in the queue, and why they do not delay it (Q8).

Used by `reservations`. A run behind can start only on what the plans ahead leave, so a later run
that is already running uses nothing that such a plan needs. The reason is derived here from the
plan and the leases.
"""

from leasehold.control.questions.answers.runs import PassedBy
from leasehold.control.questions.formats import instant, listed, moment
from leasehold.core.admission.order import is_ahead
from leasehold.core.facts import Run
from leasehold.core.reservations import Confidence, Reservation
from leasehold.core.units import FOREVER, Instant
from leasehold.core.world.width import open_leases
from leasehold.core.world.world import World

SHOWN_MAX = 8  # per reservation; the newest


class Passing:
    """Finds the runs that passed a waiting run. One object answers for all reservations."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._started: dict[str, list[tuple[Instant, Run]]] = {}
        for uid in world.open_by_run:
            run, book = world.runs.get(uid), world.books.get(uid)
            started = None if book is None else book.started
            if run is None or book is None or started is None:
                continue
            # a run started by a Resolution did not pass anything
            if uid not in world.resolution_for:
                self._started.setdefault(run.spec.flavor, []).append((started, run))
        for found in self._started.values():
            found.sort(key=lambda each: (-each[0], each[1].key))

    def of(self, reservation: Reservation) -> list[PassedBy]:
        """Return the runs behind the reservation's run that started since its announcement."""
        mine = self._world.runs.get(reservation.uid)
        found: list[PassedBy] = []
        for started, run in self._started.get(mine.spec.flavor, ()) if mine is not None else ():
            if started <= reservation.announced or len(found) == SHOWN_MAX:
                break
            if mine is not None and is_ahead(mine, run):
                found.append(self._passed(reservation, run, started))
        return found

    def _passed(self, reservation: Reservation, run: Run, started: Instant) -> PassedBy:
        world = self._world
        leases = open_leases(world, run.uid)
        ends = max(world.terms[each.name].frees_at for each in leases)
        nodes = {each.node for each in leases} & set(reservation.nodes)
        return PassedBy(
            run=run.key,
            gpus=sum(each.gpus for each in leases),
            started=instant(started),
            ends=instant(ends),
            says=_why(reservation, ends, sorted(nodes)),
        )


def _why(reservation: Reservation, ends: Instant, nodes: list[str]) -> str:
    if reservation.confidence is Confidence.MONEY:
        return f"{reservation.run_key} waits for budget, not for these GPUs"
    if ends < FOREVER and ends <= reservation.starts:
        return f"it ends by {moment(ends)}, before the planned start of {reservation.run_key}"
    if reservation.confidence is Confidence.CUTS:
        return f"it may be preempted for {reservation.run_key}, like any other run"
    if not nodes:
        return f"it uses no node that {reservation.run_key} is planned on"
    return f"on {listed(nodes)} it leaves enough GPUs for {reservation.run_key}"
