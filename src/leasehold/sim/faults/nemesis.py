"""Executes the attacks of a plan, at their times or in the middle of store calls.

An attack may be aimed at the leader, so this module knows which process leads. An attack is counted
when it takes effect, and not counted if it has no target. This module also repairs damage that is
temporary.
"""

from collections import Counter
from collections.abc import Callable
from functools import partial
from random import Random

from leasehold.core.units import SECOND, Millis
from leasehold.sim.faults.processes import Controllers, Member
from leasehold.sim.kernel import Kernel, Process
from leasehold.sim.network import Network
from leasehold.sim.nodes import SimFleet
from leasehold.sim.scenario.trouble import BUSY_NODE, CUTS, NODE_ROLES, RECOVERING, Attack, Harm

DOWN_MAX: Millis = 5 * SECOND  # maximum time until a killed process is restarted
LOOK_MS: Millis = 100


def link_of(node: str) -> str:
    """Return the name that the network has for a node's link to the store."""
    return f"node {node}"


class Nemesis:
    def __init__(
        self,
        kernel: Kernel,
        cast: Controllers,
        network: Network,
        fleet: SimFleet,
        meddle: Callable[[Random], str],
        *,
        seed: int,
        drifts: dict[str, int],
        tell: Callable[[str, str], None],
    ) -> None:
        self._kernel = kernel
        self._cast = cast
        self._network = network
        self._fleet = fleet
        self._meddle = meddle
        self._process = kernel.process("nemesis")
        self._random = Random(f"{seed}/nemesis")
        self._of_users = Random(f"{seed}/nemesis/users")
        self._of_nodes = Random(f"{seed}/nemesis/nodes")
        self._cuts: dict[str, int] = {}  # node -> number of cuts not healed yet
        self._drifts = drifts
        self._tell = tell
        self._armed: list[Attack] = []
        self._is_over = False
        self._coming_back: set[str] = set()
        self.effects: Counter[str] = Counter()

    def begin(self, attacks: tuple[Attack, ...]) -> None:
        if attacks:
            self._process.tasks.spawn("attacks", self._attack(attacks))
        self._process.tasks.spawn("revival", self._revive())

    def stop(self, *, core: str) -> None:
        """Stop the attacks. Without `core`, repair all controllers. With `core` (a controller's
        name), repair only that one; the others are crashed for good, or stay paused if they are
        paused. The nodes' links to the store are repaired in both cases."""
        self._is_over = True
        self._armed.clear()
        for node in list(self._cuts):
            self._cuts[node] = 1
            self._heal_link(node)
        for name, member in list(self._cast.members.items()):
            if core and name != core:
                if member.is_alive and not member.process.paused:
                    member.process.crash()  # for good: the core must work without it
                continue
            self._mend(member.process)

    def strike(self, attack: Attack) -> None:
        """Execute an attack now."""
        if attack.who in NODE_ROLES:
            self._cut_link(attack)
            return
        target = self._target(attack)
        if target is not None:
            self._strike(attack, target)

    async def reach(self, member: Process, point: str) -> None:
        """Execute an attack that waits for this process to reach this point of a store call, if
        there is one."""
        for attack in self._armed:
            if attack.point == point and self._is_meant(attack, member.name):
                self._armed.remove(attack)
                self._strike(attack, member)
                if member.paused:
                    await member.clock.sleep(0)  # blocks until it is resumed
                return

    async def _attack(self, attacks: tuple[Attack, ...]) -> None:
        clock = self._process.clock
        for attack in attacks:
            await clock.sleep(max(0, self._kernel.start + attack.at - self._kernel.now))
            if self._is_over:
                return
            if attack.point:
                self._armed.append(attack)
                continue
            self.strike(attack)

    def _target(self, attack: Attack) -> Process | None:
        match attack.who:
            case "leader":
                leader = self._cast.leader()
                return None if leader is None else leader.process
            case "standby":
                waiting = [each for each in self._cast.alive() if not each.leads]
                return self._random.choice(waiting).process if waiting else None
            case "any":
                return self._random.choice(list(self._cast.members.values())).process
            case name:
                return self._kernel.process(name)

    def _is_meant(self, attack: Attack, name: str) -> bool:
        match attack.who:
            case "leader":
                leader = self._cast.leader()
                return leader is not None and leader.process.name == name
            case "standby":
                leader = self._cast.leader()
                return leader is None or leader.process.name != name
            case "recovering":
                member = self._cast.members[name]
                return member.leads and member.plane.world is None
            case "any":
                return True
            case meant:
                return meant == name

    def _strike(self, attack: Attack, target: Process) -> None:
        """Apply the attack to its target and count it."""
        if attack.harm is Harm.MEDDLE:
            what = self._meddle(self._of_users)
            self._tell(
                "nemesis", f"user: {what or 'nothing'} while {target.name} is {attack.point}"
            )
            self.effects["meddle"] += bool(what)
            return
        point = f" {attack.point}" if attack.point else ""
        self._tell("nemesis", f"{attack.harm} {target.name} for {attack.lasts} ms{point}")
        self.effects[f"{attack.harm}{' at a point' if attack.point else ''}"] += 1
        self.effects["pause in recovery"] += attack.who == RECOVERING
        match attack.harm:
            case Harm.CRASH:
                self._later(attack.lasts, lambda: self._start(target.name))
                self._coming_back.add(target.name)
                target.crash()
            case Harm.PAUSE:
                target.pause()
                self._later(attack.lasts, target.resume)
            case Harm.CUT | Harm.CUT_REQUESTS | Harm.CUT_ANSWERS:
                self._network.cut(
                    target.name,
                    requests=attack.harm is not Harm.CUT_ANSWERS,
                    answers=attack.harm is not Harm.CUT_REQUESTS,
                )
                self._later(attack.lasts, lambda: self._network.heal(target.name))
            case Harm.STOP:
                self._stop_cleanly(target.name, attack.lasts)
            case Harm.DRIFT:
                target.clock.drift(attack.amount)
                usual = self._drifts.get(target.name, 0)
                self._later(attack.lasts, lambda: target.clock.drift(usual))
            case Harm.JUMP:
                target.clock.jump(attack.amount)
                self._later(attack.lasts, lambda: target.clock.jump(-attack.amount))
            case Harm.TWIN:
                self._twin(target.name, attack.lasts)

    def _cut_link(self, attack: Attack) -> None:
        """Cut the link of one node to the store. If cuts of a node overlap, the link is healed when
        the last one ends."""
        assert attack.harm in CUTS, attack.harm
        nodes = self._fleet.busy_nodes() if attack.who == BUSY_NODE else self._fleet.nodes
        if not nodes:
            return
        node = self._of_nodes.choice(nodes)
        mute, deaf = attack.harm is not Harm.CUT_ANSWERS, attack.harm is not Harm.CUT_REQUESTS
        self._tell("nemesis", f"{attack.harm} node {node} for {attack.lasts} ms")
        self.effects[f"{attack.harm} of a node"] += 1
        self._cuts[node] = self._cuts.get(node, 0) + 1
        self._network.cut(link_of(node), requests=mute, answers=deaf)
        self._fleet.cut_link(node, deaf=deaf, mute=mute)
        self._later(attack.lasts, lambda: self._heal_link(node))

    def _heal_link(self, node: str) -> None:
        left = self._cuts.get(node, 0) - 1
        if left > 0:
            self._cuts[node] = left
        elif left == 0:
            del self._cuts[node]
            self._network.heal(link_of(node))
            self._fleet.heal_link(node)

    def _twin(self, name: str, lasts: Millis) -> None:
        """Start a second process with the same holder name, as happens in a rolling update."""
        twin = f"{name}-twin"
        if twin in self._cast.members and self._cast.members[twin].is_alive:
            return
        self._cast.start(twin, as_name=name)
        self._coming_back.add(twin)  # it does not come back: a dead twin stays dead
        self._later(lasts, self._kernel.process(twin).crash)

    def _stop_cleanly(self, name: str, lasts: Millis) -> None:
        member = self._cast.members.get(name)
        if member is None or not member.is_alive:
            return
        member.keeper.stop()
        self._coming_back.add(name)
        self._process.tasks.spawn("clean stop", self._exit(member, lasts))

    async def _exit(self, member: Member, lasts: Millis) -> None:
        clock = self._process.clock
        while member.is_alive and not member.keeper.is_stopped:
            await clock.sleep(LOOK_MS)
        if member.is_alive:
            member.process.crash()  # it has nothing left to do, and exits
        await clock.sleep(lasts)
        self._start(member.process.name)

    def _later(self, ms: Millis, do: Callable[[], object]) -> None:
        async def wait() -> None:
            await self._process.clock.sleep(ms)
            do()

        self._process.tasks.spawn("later", wait())

    def _start(self, name: str) -> None:
        self._coming_back.discard(name)
        member = self._cast.members.get(name)
        if member is None or not member.is_alive:
            self._cast.start(name)

    async def _revive(self) -> None:
        """Restart processes that faults killed in the middle of a write, as a supervisor would."""
        seen = 0
        while True:
            await self._process.clock.sleep(LOOK_MS)
            if seen == self._kernel.crashes:
                continue  # no crash since the last check
            seen = self._kernel.crashes
            for name, member in list(self._cast.members.items()):
                if not member.is_alive and name not in self._coming_back:
                    self._coming_back.add(name)
                    down = self._random.randrange(1, DOWN_MAX)
                    if not self._is_over:
                        self._later(down, partial(self._start, name))

    def _mend(self, process: Process) -> None:
        self._network.heal(process.name)
        process.clock.drift(0)
        if process.paused:
            process.resume()
        member = self._cast.members[process.name]
        if member.is_alive and member.plane.version.is_outdated:
            process.crash()  # and restarts with the current version
        if not member.is_alive and not process.name.endswith("-twin"):
            self._start(process.name)
