"""Other tenants' names behind stable pseudonyms, where the configuration hides them.

Applied to a whole answer, sentences too: every word that is the name of an owner, run, budget,
envelope, reservation or lease of somebody else is replaced. GPUs and times stay. The pseudonyms
are keyed, so that nobody finds a name by trying the likely ones.
"""

import hashlib
import hmac
import re

from leasehold.core.objects.access import Caller, OwnerVerb
from leasehold.core.objects.owners import is_owner
from leasehold.core.units import parse_instant
from leasehold.core.world.world import World

# A word as names are written; a full stop or colon behind it belongs to the sentence.
_WORD = re.compile(r"[A-Za-z0-9][-A-Za-z0-9_.:/]*[A-Za-z0-9]|[A-Za-z0-9]")


def is_own(caller: Caller, owner: str, namespace: str = "") -> bool:
    """An owner it may spend or fund for, or a namespace it sees."""
    if caller.is_trusted or (namespace and caller.sees(namespace)):
        return True
    return caller.may(OwnerVerb.SPEND, owner) or caller.may(OwnerVerb.FUND, owner)


class Mask:
    """One caller's view of one answer."""

    def __init__(self, world: World, caller: Caller, key: bytes) -> None:
        self._world = world
        self._caller = caller
        self._key = key
        self._owners = {budget.owner for budget in world.budgets.values()}
        self._owners |= {run.spec.owner for run in world.runs.values()}
        self._owners |= {lease.owner for lease in world.leases.values()}
        for owner in list(self._owners):
            self._owners.update(each for level in world.tree.ancestors(owner) for each in level)
        self._known: dict[str, str] = {}

    def over(self, value: object) -> object:
        if isinstance(value, dict):
            return {key: self.over(each) for key, each in value.items()}
        if isinstance(value, list):
            return [self.over(each) for each in value]
        if isinstance(value, str):
            return _WORD.sub(lambda found: self._word(found.group()), value)
        return value

    def _word(self, word: str) -> str:
        known = self._known.get(word)
        if known is None:
            known = self._known[word] = self._masked(word)
        return known

    def _masked(self, word: str) -> str:
        kind = self._hidden_kind(word)
        if not kind:
            return word
        digest = hmac.new(self._key, f"{kind}\n{word}".encode(), hashlib.sha256).hexdigest()
        return f"{kind}-{digest[:10]}"

    def _hidden_kind(self, word: str) -> str:
        """What of somebody else's the word names; empty for a word that may be told."""
        world = self._world
        if word in self._owners or (":" in word and is_owner(word) and parse_instant(word) is None):
            return "" if is_own(self._caller, word) else "owner"
        lease = world.leases.get(word)
        if lease is not None:
            return "" if is_own(self._caller, lease.owner, lease.namespace) else "lease"
        namespace, slash, rest = word.partition("/")
        if not slash:
            return self._of_record(word)
        if rest.count("/") == 1:
            envelope = world.envelopes.get(word)
            if envelope is not None:
                owner = envelope.owner
                return "" if is_own(self._caller, owner, namespace) else "envelope"
            return "" if self._caller.sees(namespace) or self._is_domain(word) else "envelope"
        if "/" in rest or self._caller.sees(namespace) or self._is_place(namespace, rest):
            return ""
        uid = world.uid_of.get(word)
        run = world.runs.get(uid) if uid is not None else None
        if run is not None:
            return "" if is_own(self._caller, run.spec.owner) else "run"
        budget = world.budgets.get(word)
        if budget is not None:
            return "" if is_own(self._caller, budget.owner) else "budget"
        return "name"

    def _of_record(self, word: str) -> str:
        resolution = self._world.resolutions.get(word)
        if resolution is None:
            return ""
        namespace = resolution.subject.partition("/")[0]
        return "" if self._caller.sees(namespace) else "resolution"

    def _is_place(self, region: str, cluster: str) -> bool:
        fleet = self._world.fleet
        return any((region, cluster) in fleet.locations(flavor) for flavor, _ in fleet.pools)

    def _is_domain(self, word: str) -> bool:
        return any(domain == word for _, domain in self._world.fleet.pools)
