"""One replica of the controller on a Kubernetes cluster: contends for tenure, and decides while it
has it.

`leasehold controller` runs it. A composition root and nothing else: every part is made here, handed
to the others, started when tenure is gained, and dropped at once when it is lost.
"""

import secrets
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass

import structlog

from leasehold.adapters.asyncio_runtime import AsyncioClock, AsyncioTasks
from leasehold.adapters.containment import About, Containment
from leasehold.adapters.kubernetes.client import Client
from leasehold.adapters.kubernetes.secrets import kept_secret
from leasehold.adapters.kubernetes.store import KubernetesStore
from leasehold.control.turn import Turn
from leasehold.core.objects.tenure import NAMESPACE, Holder
from leasehold.core.objects.wire import part, whole_at
from leasehold.core.world.world import World
from leasehold.ports.runtime import Signal, Task
from leasehold.ports.store import NotFound
from leasehold.ports.tenure import Tenure
from leasehold.shell.config import Config
from leasehold.shell.events import Story, Teller
from leasehold.shell.keeper import Keeper
from leasehold.shell.ledger import SHARD
from leasehold.shell.logs import DecisionLog
from leasehold.shell.loop import Controller
from leasehold.shell.metrics import Metrics
from leasehold.shell.tenure import StoreTenures

GATHER = 10
LOTTERY = "leasehold-lottery"  # the Secret that the lottery's nonces are derived from
KEY_BYTES = 32

_log = structlog.get_logger("leasehold")


class Group:
    """Tasks that end together; what they spawn belongs to them."""

    def __init__(self, tasks: AsyncioTasks) -> None:
        self._tasks = tasks
        self._mine: list[Task] = []

    def spawn(self, name: str, coroutine: Coroutine[object, object, object]) -> Task:
        task = self._tasks.spawn(name, coroutine)
        self._mine.append(task)
        return task

    def signal(self) -> Signal:
        return self._tasks.signal()

    def cancel(self) -> None:
        for task in reversed(self._mine):
            task.cancel()
        self._mine.clear()


@dataclass
class Term:
    """What there is only while tenure is held."""

    group: Group
    controller: Controller | None = None


class Replica:
    """`run` goes on until `stop`."""

    def __init__(
        self, client: Client, clock: AsyncioClock, tasks: AsyncioTasks, *, name: str, config: Config
    ) -> None:
        self._client = client
        self._clock = clock
        self._tasks = tasks
        self._config = config
        self.store = KubernetesStore(client, clock)
        self.metrics = Metrics(lambda: self.world, clock)
        self._decisions = DecisionLog()
        self._containment = Containment(self._contained)
        self._term: Term | None = None
        self._teller: Teller | None = None
        self._keeper = Keeper(
            StoreTenures(self.store, clock, tasks, margins=config.tenure),
            clock,
            tasks,
            key=SHARD,
            holder=Holder(name=name, nonce=secrets.token_hex(4)),
            office=self,
            epoch=self._sealed_epoch,
            margins=config.tenure,
        )

    async def run(self) -> None:
        await self._keeper.run()

    def stop(self) -> None:
        """Clean: tenure is given back at once, for whoever waits for it."""
        self._keeper.stop()

    @property
    def world(self) -> World | None:
        controller = self._term.controller if self._term is not None else None
        return None if controller is None else controller.world

    def troubles(self) -> Mapping[str, str]:
        """Why we are not ready, by part; empty where all is well. A standby is ready when it knows
        whom it stands by."""
        if self._keeper.tenure is None:
            return {"tenure": "" if self._keeper.leader else "nobody is known to hold it"}
        controller = self._term.controller if self._term is not None else None
        if controller is None or controller.world is None:
            return {"controller": "it is recovering the ledger"}
        return {"controller": controller.trouble}

    # What the keeper says.

    def gained(self, tenure: Tenure) -> None:
        _log.info("tenure gained", epoch=tenure.epoch, holder=tenure.holder.identity)
        self._term = Term(Group(self._tasks))
        self._term.group.spawn("term", self._decide(self._term, tenure.epoch))

    def unsure(self) -> None:
        _log.warning("tenure is not renewed")

    def sure(self) -> None:
        _log.info("tenure is renewed again")

    def lost(self, why: str) -> None:
        _log.warning("tenure lost", message=why)
        term, self._term = self._term, None
        if term is not None:
            term.group.cancel()

    async def _decide(self, term: Term, epoch: int) -> None:
        key = await kept_secret(self._client, NAMESPACE, LOTTERY, size=KEY_BYTES)
        teller = Teller(self.store, self._clock, term.group)
        self._teller = teller
        controller = Controller(
            self.store,
            self._clock,
            term.group,
            policy=self._config.policy,
            lottery_key=key,
            labels=self._config.labels,
            epoch=epoch,
            is_shared=True,
            observer=self._observe,
            on_turn=self._after_turn,
            stopwatch=self.metrics,
            containment=self._containment,
            gather=GATHER,
        )
        term.controller = controller
        term.group.spawn("events", teller.run())
        await controller.run()

    def _after_turn(self, turn: Turn) -> None:
        self.metrics.after_turn(turn)
        self._decisions.after_turn(turn)
        if self._teller is not None:
            self._teller.after_turn(turn)

    def _observe(self, now: int, words: str) -> None:
        if words.startswith("alert"):
            self.metrics.note_alert()
        self._decisions.observe(now, words)

    def _contained(self, about: About, why: str, error: Exception) -> None:
        self.metrics.note_contained(about.kind)
        self.metrics.note_alert()
        _log.error("contained", about=about.words, message=why, exc_info=error)
        if about.kind != "Task" and self._teller is not None:
            told = f"{why}; it is left alone, and everything else goes on"
            self._teller.tell(
                Story(kind=about.kind, namespace=about.namespace, name=about.name, uid=about.uid,
                      reason="Quarantined", message=told, type="Warning")
            )  # fmt: skip

    async def _sealed_epoch(self) -> int:
        try:
            head = await self.store.get("LedgerHead", "", SHARD)
        except NotFound:
            return 0
        return whole_at(part(head, "spec"), "epoch") or 0
