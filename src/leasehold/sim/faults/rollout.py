"""Controllers with different versions, as during a rollout or rollback.

A start of a controller may have other settings. Or its program may not know the ledger's format;
such a program must not touch the ledger. `Versions` draws the version of every start.
"""

from collections import Counter
from random import Random

from msgspec.structs import replace

from leasehold.core.facts import Record
from leasehold.core.ledger.head import FORMAT
from leasehold.core.names import Wire
from leasehold.core.objects.wire import part
from leasehold.ports.store import Store
from leasehold.shell.config.config import Config, load_config
from leasehold.sim.scenario.trouble import Rollout
from leasehold.sim.store_wrapper import StoreAround

HEAD = "LedgerHead"
OUTDATED = "head of a later format"


class Version(Record, frozen=True):
    """What a controller process runs with from one start to the next: its settings, and whether its
    program is too old for the ledger's format."""

    config: Config
    has_older_settings: bool = False
    is_outdated: bool = False


class Versions:
    """Draws a version for each start of a process, with a random stream per process."""

    def __init__(self, seed: int, rollout: Rollout, config: Config) -> None:
        self._seed = seed
        self._rollout = rollout
        self._usual = Version(config=config)
        policy = load_config(rollout.settings, config).policy
        self._older = Version(config=replace(config, policy=policy), has_older_settings=True)
        self._streams: dict[str, Random] = {}
        self.effects: Counter[str] = Counter()

    def stop(self) -> None:
        """End the rollout: all later starts have the story's own configuration."""
        self._rollout = Rollout()

    def draw(self, process: str, *, may_be_outdated: bool) -> Version:
        stream = self._streams.setdefault(process, Random(f"{self._seed}/{process}/rollout"))
        older, outdated = stream.random(), stream.random()
        version = self._older if older < self._rollout.older else self._usual
        self.effects["older settings"] += version.has_older_settings
        if may_be_outdated and outdated < self._rollout.outdated:
            return replace(version, is_outdated=True)
        return version

    def around(self, store: Store, version: Version) -> Store:
        return OutdatedStore(store, self.effects) if version.is_outdated else store


class OutdatedStore(StoreAround):
    """The store as an outdated program sees it: the head has a format that the program does not
    know."""

    def __init__(self, store: Store, effects: Counter[str]) -> None:
        super().__init__(store)
        self._effects = effects

    async def get(self, kind: str, namespace: str, name: str) -> Wire:
        obj = await self._store.get(kind, namespace, name)
        if kind != HEAD:
            return obj
        self._effects[OUTDATED] += 1
        return {**obj, "spec": {**part(obj, "spec"), "format": FORMAT + 1}}
