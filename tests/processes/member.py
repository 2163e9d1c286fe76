"""One control plane over a file that several share, as a real process: `python -m
tests.processes.member FOLDER NAME`.

What the simulator's controllers are made of, on a real clock and a real disk. It writes what
happens to it, one line each, to `FOLDER/NAME.log`: milliseconds of the machine's boot clock, which
all of them have in common, and words. Two things can be done to it that a signal alone cannot:

    --stop-at POINT     stops itself (SIGSTOP) the first time it decides and reaches a point such as
                        "before update LedgerHead", so that it stands still exactly there
    SIGUSR1             sets its wall clock back by an hour

SIGTERM ends it cleanly.
"""

import argparse
import asyncio
import os
import secrets
import signal
import sys
from pathlib import Path

from leasehold.adapters import asyncio_runtime
from leasehold.adapters.asyncio_runtime import AsyncioClock, AsyncioTasks
from leasehold.adapters.sqlite.shared import SharedStore
from leasehold.core.objects.tenure import Holder
from leasehold.core.policy import Policy
from leasehold.core.units import HOUR, SECOND, Instant
from leasehold.core.world.world import World
from leasehold.ports.store import Store
from leasehold.ports.tenure import Margins, Tenure
from leasehold.shell.config.folder import DataFolder
from leasehold.shell.leadership.keeper import Keeper
from leasehold.shell.leadership.standby import Standby
from leasehold.shell.leadership.tenure import StoreTenures
from leasehold.shell.ledger.commit import SHARD, sealed_epoch
from leasehold.shell.loop.settings import PlaneSettings
from leasehold.shell.plane import Plane
from leasehold.sim.faults.points import PointedStore

# Shorter than usual, so that a take-over takes no half a minute; and long enough for a machine that
# has much else to do.
MARGINS = Margins(
    take=8 * SECOND, hold=5 * SECOND, soft_stop=4 * SECOND, renew=SECOND, timeout=2 * SECOND
)


class SettableClock(AsyncioClock):
    """The machine's, whose wall somebody sets."""

    shift = 0

    def now(self) -> int:
        return super().now() + self.shift


class ToldPlane(Plane):
    """The plane, which writes down what happens to it."""

    def told_to(self, log: Path) -> None:
        self._file = log.open("a", encoding="utf-8", buffering=1)

    def tell(self, words: str) -> None:
        self._file.write(f"{AsyncioClock().monotonic()} {words}\n")

    def gained(self, tenure: Tenure) -> None:
        self.tell(f"gained {tenure.epoch}")
        super().gained(tenure)

    def unsure(self) -> None:
        self.tell("unsure")
        super().unsure()

    def lost(self, why: str) -> None:
        super().lost(why)
        self.tell(f"lost {why}")

    def committed(self, world: World, at: Instant) -> None:
        super().committed(world, at)
        self.tell(f"committed {world.head.seq} {world.head.epoch}")

    def alerted(self, at: Instant, words: str) -> None:
        super().alerted(at, words)
        self.tell(f"alert {words}")


class StopsOnce:
    """Awaited at every point of its store; at the one that is meant it stands still."""

    def __init__(self, point: str, plane: list[ToldPlane]) -> None:
        self._point = point
        self._plane = plane

    async def __call__(self, point: str) -> None:
        if point != self._point or self._plane[0].world is None:
            return
        self._point = ""
        self._plane[0].tell(f"stopped {point}")
        os.kill(os.getpid(), signal.SIGSTOP)
        self._plane[0].tell("goes on")


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("folder", type=Path)
    asked.add_argument("name")
    asked.add_argument("--stop-at", default="", metavar="POINT")
    given = asked.parse_args()
    asyncio_runtime.run(
        lambda _, tasks: _live(tasks, DataFolder(given.folder), given.name, given.stop_at)
    )
    return 0


async def _live(tasks: AsyncioTasks, folder: DataFolder, name: str, stop_at: str) -> None:
    clock = SettableClock()
    shared = SharedStore(folder.store, tasks, clock)
    planes: list[ToldPlane] = []
    store: Store = PointedStore(shared, StopsOnce(stop_at, planes)) if stop_at else shared
    terms = PlaneSettings(
        policy=Policy(), lottery_key=folder.key(), is_shared=True, is_strict=True, gather=10
    )
    standby = Standby(store, clock, tasks)
    plane = ToldPlane(store, clock, tasks, terms, archive=folder.archive, standby=standby)
    plane.told_to(folder.root / f"{name}.log")
    planes.append(plane)
    keeper = Keeper(
        StoreTenures(store, clock, tasks, margins=MARGINS),
        clock,
        tasks,
        key=SHARD,
        holder=Holder(name=name, nonce=secrets.token_hex(4)),
        office=plane,
        epoch=lambda: sealed_epoch(store, clock),
        margins=MARGINS,
    )
    plane.on_deposed(keeper.give_up)
    plane.start()
    standby.begin()

    def set_back() -> None:
        clock.shift -= HOUR
        plane.tell("clock set back")

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, keeper.stop)
    loop.add_signal_handler(signal.SIGUSR1, set_back)
    plane.tell("started")
    try:
        await keeper.run()
    finally:
        plane.tell("ended")
        shared.close()


if __name__ == "__main__":
    sys.exit(main())
