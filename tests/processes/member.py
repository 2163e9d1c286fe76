"""One control plane over a shared file, as a real process: `python -m tests.processes.member
FOLDER NAME`.

It has the parts of the simulator's controllers, with a real clock and a real disk. It logs every
event as one line in `FOLDER/NAME.log`: milliseconds of the machine's boot clock, which all members
share, and words. A test can do two special things to it:

    --stop-at POINT     the member stops itself (SIGSTOP) the first time it leads and reaches a
                        point such as "before update LedgerHead"
    SIGUSR1             the member sets its wall clock back by an hour

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

# Shorter than usual, so that a take-over takes less than half a minute, but long enough for a busy
# machine.
MARGINS = Margins(
    take=8 * SECOND, hold=5 * SECOND, soft_stop=4 * SECOND, renew=SECOND, timeout=2 * SECOND
)


class SettableClock(AsyncioClock):
    """The machine's clock, with a wall clock that a signal sets back."""

    shift = 0

    def now(self) -> int:
        return super().now() + self.shift


class LoggedPlane(Plane):
    """A plane that logs its events."""

    def log_to(self, log: Path) -> None:
        self._file = log.open("a", encoding="utf-8", buffering=1)

    def write_line(self, words: str) -> None:
        self._file.write(f"{AsyncioClock().monotonic()} {words}\n")

    def gained(self, tenure: Tenure) -> None:
        self.write_line(f"gained {tenure.epoch}")
        super().gained(tenure)

    def unsure(self) -> None:
        self.write_line("unsure")
        super().unsure()

    def lost(self, why: str) -> None:
        super().lost(why)
        self.write_line(f"lost {why}")

    def committed(self, world: World, at: Instant) -> None:
        super().committed(world, at)
        self.write_line(f"committed {world.head.seq} {world.head.epoch}")

    def alerted(self, at: Instant, words: str) -> None:
        super().alerted(at, words)
        self.write_line(f"alert {words}")


class StopsOnce:
    """Awaited at every point of the store; stops the process once, at the given point."""

    def __init__(self, point: str, plane: list[LoggedPlane]) -> None:
        self._point = point
        self._plane = plane

    async def __call__(self, point: str) -> None:
        if point != self._point or self._plane[0].world is None:
            return
        self._point = ""
        self._plane[0].write_line(f"stopped {point}")
        os.kill(os.getpid(), signal.SIGSTOP)
        self._plane[0].write_line("goes on")


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
    planes: list[LoggedPlane] = []
    store: Store = PointedStore(shared, StopsOnce(stop_at, planes)) if stop_at else shared
    terms = PlaneSettings(
        policy=Policy(), lottery_key=folder.key(), is_shared=True, is_strict=True, gather=10
    )
    standby = Standby(store, clock, tasks)
    plane = LoggedPlane(store, clock, tasks, terms, archive=folder.archive, standby=standby)
    plane.log_to(folder.root / f"{name}.log")
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
        plane.write_line("clock set back")

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, keeper.stop)
    loop.add_signal_handler(signal.SIGUSR1, set_back)
    plane.write_line("started")
    try:
        await keeper.run()
    finally:
        plane.write_line("ended")
        shared.close()


if __name__ == "__main__":
    sys.exit(main())
