"""Replaces other tenants' names in answers with stable pseudonyms, if the configuration hides them.

A `Mask` is applied to a whole answer, including its sentences: it replaces every word that names
another tenant's owner, run, budget, envelope, pod, lease or resolution. GPUs and times stay. The
pseudonyms are keyed, so that a caller cannot test guessed names. A `VisibleNames` defines what one
caller may read, in answers and in the parameters of questions.
"""

import hashlib
import hmac
import re

from leasehold.core.names import Wire
from leasehold.core.objects.access import Caller, OwnerVerb
from leasehold.core.objects.owners import is_owner
from leasehold.core.units import parse_instant
from leasehold.core.world.world import World

# A name as written in sentences, without a full stop or colon after it.
_WORD = re.compile(r"[A-Za-z0-9][-A-Za-z0-9_.:/]*[A-Za-z0-9]|[A-Za-z0-9]")
# Fields with names of records that begin with a run's name -> (kind for the pseudonym, the field
# beside them that names the run).
_RECORDS = {
    "lease": ("lease", "run"),
    "leases": ("lease", "run"),
    "resolution": ("resolution", "subject"),
}
_WHY = re.compile(r"([A-Z][A-Za-z]+)\(.*\)", re.DOTALL)  # a reason with its detail


class VisibleNames:
    """The names that one caller may read.

    They are the caller's namespaces, the owners that it may spend or fund for, the owners named by
    objects in these namespaces, and all owners above these owners.
    """

    def __init__(self, world: World, caller: Caller) -> None:
        self._caller = caller
        owners = {each.owner for each in world.budgets.values() if caller.sees(each.namespace)}
        owners |= {run.spec.owner for run in world.runs.values() if caller.sees(run.namespace)}
        owners |= {lease.owner for lease in world.leases.values() if caller.sees(lease.namespace)}
        self._owners = {above for owner in owners for above in _paths(owner)}

    def namespace(self, namespace: str) -> bool:
        return self._caller.sees(namespace)

    def owner(self, owner: str) -> bool:
        return owner in self._owners or self.of(owner)

    def of(self, owner: str, namespace: str = "") -> bool:
        """Return whether the caller may read an object of this owner in this namespace."""
        caller = self._caller
        if caller.is_trusted or (namespace and caller.sees(namespace)):
            return True
        return caller.may(OwnerVerb.SPEND, owner) or caller.may(OwnerVerb.FUND, owner)


def _paths(owner: str) -> list[str]:
    """Return the owner and every owner above it: a:b:c, a:b, a."""
    parts = owner.split(":")
    return [":".join(parts[:depth]) for depth in range(len(parts), 0, -1)]


class Mask:
    """Hides names in one answer to one caller."""

    def __init__(self, world: World, sight: VisibleNames, key: bytes) -> None:
        self._world = world
        self._sight = sight
        self._key = key
        self._owners = {budget.owner for budget in world.budgets.values()}
        self._owners |= {run.spec.owner for run in world.runs.values()}
        self._owners |= {lease.owner for lease in world.leases.values()}
        for owner in list(self._owners):
            self._owners.update(each for level in world.tree.ancestors(owner) for each in level)
        self._known: dict[str, str] = {}

    def over(self, answer: Wire) -> Wire:
        """Return the answer with a pseudonym for every name that the caller may not read."""
        self._learn(answer)
        found = self._told(answer)
        assert isinstance(found, dict), "an object stays one"
        return found

    def _learn(self, value: object) -> None:
        """Note hidden names of records that the World no longer has.

        Only the field beside such a name, which names its run, tells which tenant the record
        belongs to. Sentences elsewhere in the answer may repeat the name.
        """
        for each in value if isinstance(value, list) else ():
            self._learn(each)
        if not isinstance(value, dict):
            return
        for field, (kind, about) in _RECORDS.items():
            beside = value.get(about)
            if isinstance(beside, str) and self._is_hidden(beside):
                names = value.get(field)
                for name in names if isinstance(names, list) else [names]:
                    if isinstance(name, str) and name:
                        self._known[name] = self._pseudonym(kind, name)
        for each in value.values():
            self._learn(each)

    def _told(self, value: object) -> object:
        if isinstance(value, dict):
            run = value.get("run")
            if isinstance(run, str) and self._is_hidden(run):
                # The detail of a reason may name another tenant's pod or image.
                value = {key: _without_detail(each) for key, each in value.items()}
            return {key: self._told(each) for key, each in value.items()}
        if isinstance(value, list):
            return [self._told(each) for each in value]
        if isinstance(value, str):
            return _WORD.sub(lambda found: self._word(found.group()), value)
        return value

    def _is_hidden(self, word: str) -> bool:
        return self._word(word) != word

    def _word(self, word: str) -> str:
        known = self._known.get(word)
        if known is None:
            kind = self._hidden_kind(word)
            known = self._known[word] = self._pseudonym(kind, word) if kind else word
        return known

    def _pseudonym(self, kind: str, word: str) -> str:
        digest = hmac.new(self._key, f"{kind}\n{word}".encode(), hashlib.sha256).hexdigest()
        return f"{kind}-{digest[:10]}"

    def _hidden_kind(self, word: str) -> str:
        """Return what the word names if it must be hidden; "" if it may be shown."""
        world, sight = self._world, self._sight
        if word in self._owners or (":" in word and is_owner(word) and parse_instant(word) is None):
            return "" if sight.owner(word) else "owner"
        lease = world.leases.get(word)
        if lease is not None:
            return "" if sight.of(lease.owner, lease.namespace) else "lease"
        namespace, slash, rest = word.partition("/")
        if not slash:
            return self._of_record(word)
        if rest.count("/") == 1:
            envelope = world.envelopes.get(word)
            if envelope is not None:
                return "" if sight.of(envelope.owner, namespace) else "envelope"
            return "" if sight.namespace(namespace) or self._is_domain(word) else "envelope"
        if "/" in rest or sight.namespace(namespace) or self._is_place(namespace, rest):
            return ""
        uid = world.uid_of.get(word)
        run = world.runs.get(uid) if uid is not None else None
        if run is not None:
            return "" if sight.of(run.spec.owner) else "run"
        budget = world.budgets.get(word)
        if budget is not None:
            return "" if sight.of(budget.owner) else "budget"
        return "name"

    def _of_record(self, word: str) -> str:
        resolution = self._world.resolutions.get(word)
        if resolution is None:
            return ""
        namespace = resolution.subject.partition("/")[0]
        return "" if self._sight.namespace(namespace) else "resolution"

    def _is_place(self, region: str, cluster: str) -> bool:
        fleet = self._world.fleet
        return any((region, cluster) in fleet.locations(flavor) for flavor, _ in fleet.pools)

    def _is_domain(self, word: str) -> bool:
        return any(domain == word for _, domain in self._world.fleet.pools)


def _without_detail(value: object) -> object:
    """Return `Fail(image registry/x not found)` as `Fail`, in nested values, too."""
    if isinstance(value, dict):
        return {key: _without_detail(each) for key, each in value.items()}
    found = _WHY.fullmatch(value) if isinstance(value, str) else None
    return value if found is None else found.group(1)
