"""The controllers of a simulation: processes with their own clocks, network and faults.

Each controller runs the shipped plane and keeper (`shell.plane`, `shell.leadership.keeper`). This
module only starts and restarts them.
"""

import hashlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

from leasehold.control.turn import Turn
from leasehold.core.ledger.head import Head
from leasehold.core.objects.tenure import Holder
from leasehold.core.units import Instant
from leasehold.core.world.world import World
from leasehold.ports.store import Store
from leasehold.ports.tenure import Margins, Tenure
from leasehold.shell.leadership.keeper import Keeper
from leasehold.shell.ledger.commit import sealed_epoch
from leasehold.shell.ledger.known_ledger import KnownLedger
from leasehold.shell.loop.settings import PlaneSettings
from leasehold.shell.plane import Plane
from leasehold.sim.faults.check_standby import WatchedStandby
from leasehold.sim.faults.check_tenure import WatchedTenures
from leasehold.sim.faults.rollout import Version, Versions
from leasehold.sim.kernel import Kernel, Process

KEY = "main"
IDLE_STEPS, IDLE_MS = 4, 50
Tell = Callable[[str, str], None]
OnCommit = Callable[[World, Instant], None]
OnTurn = Callable[[str, Turn], None]
OnHandedOver = Callable[[Head, KnownLedger | None], None]


class WatchedPlane(Plane):
    """The shipped plane, which also reports what happens to the simulation."""

    version: Version

    def watched_by(
        self, name: str, tell: Tell, on_commit: OnCommit, fail: Callable[[str], None]
    ) -> None:
        self._name, self._tell, self._look, self._fail = name, tell, on_commit, fail

    def said(self, at: Instant, words: str) -> None:
        super().said(at, words)
        self._tell(self._name, words)

    def alerted(self, at: Instant, words: str) -> None:  # noqa: ARG002 - the trace has a clock
        self._tell(self._name, f"alert: {words}")

    def committed(self, world: World, at: Instant) -> None:
        super().committed(world, at)
        self._look(world, at)

    def gained(self, tenure: Tenure) -> None:
        with_what = " with older settings" if self.version.has_older_settings else ""
        self._tell(self._name, f"gained epoch {tenure.epoch}{with_what}")
        if self.version.is_outdated:
            self._fail(f"LaterFormatIsLeftAlone: {self._name} does not know it, and leads")
        super().gained(tenure)

    def unsure(self) -> None:
        self._tell(self._name, "unsure")
        super().unsure()

    def sure(self) -> None:
        self._tell(self._name, "sure again")
        super().sure()

    def lost(self, why: str) -> None:
        self._tell(self._name, f"lost: {why}")
        super().lost(why)

    async def _lead(self, epoch: int) -> None:
        """Lead until deposed. After that the keeper must end the tenure, which cancels this task.
        The keeper gets a few steps of time for it, because its process may be paused."""
        await super()._lead(epoch)
        for _ in range(IDLE_STEPS):
            await self._clock.sleep(IDLE_MS)
        self._fail(f"DeposedContends: {self._name} was deposed and goes on holding its tenure")


class Member:
    """One start of one controller, with its process, plane and keeper."""

    def __init__(
        self, process: Process, holder: Holder, plane: WatchedPlane, keeper: Keeper
    ) -> None:
        self.process = process
        self.plane = plane
        self.keeper = keeper
        self._incarnation = process.incarnation
        self.identity = holder.identity

    @property
    def is_alive(self) -> bool:
        return self.process.incarnation == self._incarnation

    @property
    def epoch(self) -> int:
        return 0 if self.keeper.tenure is None else self.keeper.tenure.epoch

    @property
    def believes(self) -> bool:
        return self.keeper.tenure is not None and self.is_alive and self.keeper.is_valid

    @property
    def leads(self) -> bool:
        return self.is_alive and self.plane.is_leading


class Controllers:
    """Starts the controllers and knows the newest start of each. `wrap` returns the store as a
    process sees it, with faults and network."""

    def __init__(
        self,
        kernel: Kernel,
        versions: Versions,
        *,
        seed: int,
        has_ledger: Callable[[], bool],
        wrap: Callable[[Process], Store],
        tell: Tell,
        on_commit: OnCommit,
        on_turn: OnTurn,
        on_handed_over: OnHandedOver,
        fail: Callable[[str], None],
        archive: Path,
        margins: Margins,
    ) -> None:
        self._kernel = kernel
        self._versions = versions
        self._seed = seed
        self._has_ledger = has_ledger
        self._wrap = wrap
        self._tell = tell
        self._on_commit = on_commit
        self._on_turn = on_turn
        self._on_handed_over = on_handed_over
        self._fail = fail
        self._archive = archive
        self._margins = margins
        self._starts = 0
        self.members: dict[str, Member] = {}

    def start(self, name: str, *, as_name: str = "") -> Member:
        """Start a controller in the process `name`. With `as_name`, it uses that name for its
        tenure."""
        process = self._kernel.process(name)
        self._starts += 1
        holder = Holder(name=as_name or name, nonce=f"{self._starts:04d}")
        version = self._versions.draw(name, may_be_outdated=self._can_do_without(name))
        store = self._versions.around(self._wrap(process), version)
        clock, tasks = process.clock, process.tasks
        terms = PlaneSettings(
            policy=version.config.policy,
            labels=version.config.labels,
            lottery_key=hashlib.sha256(f"leasehold/sim/{self._seed}".encode()).digest(),
            is_shared=True,
            is_strict=True,
        )
        standby = WatchedStandby(store, clock, tasks)
        standby.seen = self._on_handed_over
        plane = WatchedPlane(
            store, clock, tasks, terms, archive=self._archive / name, standby=standby
        )
        plane.watched_by(name, self._tell, self._on_commit, self._fail)
        plane.listen(partial(self._on_turn, name))
        plane.version = version

        keeper = Keeper(
            WatchedTenures(store, clock, tasks, margins=self._margins, fail=self._fail),
            clock,
            tasks,
            key=KEY,
            holder=holder,
            office=plane,
            epoch=lambda: sealed_epoch(store, clock),
            margins=self._margins,
        )
        plane.on_deposed(keeper.give_up)
        member = Member(process, holder, plane, keeper)
        self.members[name] = member
        plane.start()
        standby.begin()
        tasks.spawn("keeper", keeper.run())
        return member

    def _can_do_without(self, name: str) -> bool:
        """Return whether a start of `name` may be of an outdated program: there must be a ledger
        (whose format that program does not know), and another controller that is alive and not
        outdated."""
        others = [each for each in self.alive() if each.process.name != name]
        outdated = [each for each in others if each.plane.version.is_outdated]
        return self._has_ledger() and bool(others) and not outdated

    def alive(self) -> list[Member]:
        return [each for each in self.members.values() if each.is_alive]

    def leader(self) -> Member | None:
        """Return a controller that leads, or that still considers itself leader; None if there is
        none."""
        leading = [each for each in self.alive() if each.leads]
        return leading[0] if leading else None
