"""Several planes on one simulated store, with machines, a budget and a tenure for each."""

from pathlib import Path

from leasehold.adapters.memory.store import MemoryStore
from leasehold.adapters.objects.admission import Admission
from leasehold.control.views.numbers import run_view
from leasehold.core.facts import Node
from leasehold.core.objects.node import Labels
from leasehold.core.objects.tenure import Holder
from leasehold.core.objects.wire import part
from leasehold.core.policy import Policy
from leasehold.core.units import HOUR, Millis
from leasehold.ports.store import Store
from leasehold.ports.tenure import Tenure
from leasehold.shell.leadership.standby import Standby
from leasehold.shell.loop.settings import PlaneSettings
from leasehold.shell.plane import Plane
from leasehold.sim.kernel import Kernel
from leasehold.sim.nodes import SimFleet
from leasehold.sim.scenario.ledger import at_once, objects_of
from leasehold.sim.scenario.parse_actions import manifest

POLICY = Policy(keep_closed=HOUR)
RUN = {"owner": "t:one", "resources": {"gpuType": "H", "totalGPUs": 8, "gpusPerPod": 8}}


class Cluster:
    def __init__(self, tmp_path: Path) -> None:
        self.kernel = Kernel(500_000 * HOUR)
        user, machines = self.kernel.process("user"), self.kernel.process("nodes")
        self.store = MemoryStore(user.tasks, user.clock, Admission())
        self.fleet = SimFleet(self.store, machines.clock, machines.tasks, labels=Labels())
        machines.tasks.spawn("fleet", self.fleet.run())
        for name in ("n0", "n1"):
            self.fleet.add_node(
                Node(name=name, flavor="H", region="r", cluster="c", fabric="a", gpus=8)
            )
        spec = {"owner": "t:one", "envelopes": [{"name": "e", "flavor": "H", "concurrency": 16}]}
        at_once(self.store.create(manifest("Budget", "t/t", spec)))
        self.kernel.settle()
        self._folder = tmp_path

    def plane(
        self,
        name: str,
        store: Store | None = None,
        *,
        stands_by: bool = False,
        is_strict: bool = True,
    ) -> Plane:
        """Start a plane; `store` is its own view of the shared store."""
        process, seen = self.kernel.process(name), store or self.store
        terms = PlaneSettings(
            policy=POLICY, lottery_key=b"k" * 32, is_shared=True, is_strict=is_strict
        )
        standby = Standby(seen, process.clock, process.tasks)
        plane = Plane(
            seen, process.clock, process.tasks, terms, archive=self._folder, standby=standby
        )
        plane.start()
        if stands_by:
            standby.begin()
        return plane

    def submit(self, key: str) -> None:
        at_once(self.store.create(manifest("Run", key, RUN)))

    def wait(self, span: Millis) -> None:
        until = self.kernel.now + span
        self.kernel.settle()
        while (due := self.kernel.next_timer()) is not None and due <= until:
            self.kernel.advance_to(due)
            self.kernel.settle()
        self.kernel.advance_to(until)
        self.kernel.settle()

    def epoch(self) -> object:
        [head] = objects_of(self.store, "LedgerHead")
        return part(head, "spec")["epoch"]

    def events(self) -> int:
        return len(objects_of(self.store, "Event"))

    def phase(self, plane: Plane, key: str) -> str:
        world = plane.world
        assert world is not None, "it leads"
        return run_view(world, world.uid_of[key], self.kernel.now).phase


def tenure(epoch: int) -> Tenure:
    holder = Holder(name=f"p{epoch}", nonce=str(epoch))
    return Tenure(key="main", holder=holder, epoch=epoch, version=1, since=0)
