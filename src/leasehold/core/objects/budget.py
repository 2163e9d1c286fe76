"""Budget manifests: all rules of a Budget's spec, and the record made from it.

Called by the store's admission check, `leasehold lint`, the scenario runner and the loop that folds
objects. `check_budget` and `budget_from_wire` share one reader, so that no field is decoded in a
way that was not checked. Looks at one object only, except in `parent_cycles`.
"""

from collections.abc import Iterable

import msgspec

from leasehold.core.facts import Aggregate, Budget, Envelope, Lending, Sharing
from leasehold.core.names import Wire
from leasehold.core.objects import readers
from leasehold.core.objects.fields import Fields
from leasehold.core.objects.owners import default_parents
from leasehold.core.objects.problems import InvalidManifest, Problem, no_spec, shown
from leasehold.core.objects.wire import canonical, decoded, exact, list_at, part, stamps, text_at
from leasehold.core.units import FOREVER, format_gpu_hours, plural

NAMES_SHOWN_MAX = 8
SPEC_BYTES_MAX = 480 * 1024  # stated in one ledger batch, which holds 512 KiB

_HOURS = "maxGPUHours"
_SHARING = readers.one_of(Sharing)


def check_budget(raw: object) -> list[Problem]:
    """Return every problem of the spec, with paths; `manifests` checks the metadata."""
    return _read(raw)[1]


def budget_from_wire(raw: object) -> Budget:
    """Return the record of a checked Budget; raise `InvalidManifest` for an invalid one."""
    budget, problems = _read(raw)
    if budget is None:
        raise InvalidManifest(problems)
    return budget


def budget_from_fact(key: str, spec: bytes) -> Budget:
    """Return the Budget stated in a ledger batch: `wire_spec`, in which fractions are texts."""
    namespace, _, name = key.partition("/")
    read = decoded(spec)
    for envelope in list_at(read, "envelopes"):
        for place in (envelope, part(envelope, "lending")):
            if isinstance(place, dict) and isinstance(place.get(_HOURS), str):
                place[_HOURS] = msgspec.json.decode(text_at(place, _HOURS))
    wire: Wire = {"metadata": {"namespace": namespace, "name": name}, "spec": read}
    return budget_from_wire(wire)


def budget_warnings(raw: object) -> list[Problem]:
    """Return warnings: settings of a checked Budget that are legal but surely not intended."""
    found = []
    for index, envelope in enumerate(budget_from_wire(raw).envelopes):
        if envelope.max_gpu_ms is None or envelope.end == FOREVER or envelope.start == 0:
            continue
        most = envelope.concurrency * (envelope.end - envelope.start)
        if envelope.max_gpu_ms > most:
            remedy = (
                f"{plural(envelope.concurrency, 'GPU')} can use at most {format_gpu_hours(most)} "
                "GPU-hours within the window; lower maxGPUHours or raise concurrency"
            )
            value = format_gpu_hours(envelope.max_gpu_ms)
            path = f"spec.envelopes[{index}].maxGPUHours"
            found.append(Problem(path=path, value=value, remedy=remedy))
    return found


def check_parent_cycles(budgets: Iterable[Budget]) -> list[Problem]:
    """Return a problem for every parent that is its own descendant, over all these Budgets."""
    return [problem for _, problem in parent_cycles(budgets)]


def parent_cycles(budgets: Iterable[Budget]) -> list[tuple[Budget, Problem]]:
    """Return each Budget on a cycle with its problem, so that callers can pick out one Budget."""
    known = sorted(budgets, key=lambda budget: budget.key)
    parents: dict[str, set[str]] = {}
    for budget in known:
        parents.setdefault(budget.owner, set()).update(budget.parents)
    found = []
    knotted = _knotted(parents)
    for budget in known:
        if budget.owner not in knotted:
            continue
        for index, parent in enumerate(budget.parents):
            way = _way_back(parents, start=parent, goal=budget.owner)
            if way:
                cycle = " -> ".join((budget.owner, *way))
                remedy = "parents must not form a cycle; remove one of these parents"
                path = f"spec.parents[{index}]"
                found.append((budget, Problem(path=path, value=shown(cycle), remedy=remedy)))
    return found


def _knotted(parents: dict[str, set[str]]) -> set[str]:
    """Return the owners that may be on a cycle of parents, usually none.

    Repeatedly removes owners without parents and owners without children; each is looked at once.
    """
    above: dict[str, set[str]] = {}
    todo = list(parents)
    while todo:
        owner = todo.pop()
        if owner not in above:
            above[owner] = set(parents.get(owner, default_parents(owner)))
            todo.extend(above[owner])
    below: dict[str, set[str]] = {owner: set() for owner in above}
    for owner, those in above.items():
        for parent in those:
            below[parent].add(owner)
    for ends, others in ((above, below), (below, above)):
        loose = [owner for owner, those in ends.items() if not those]
        while loose:
            owner = loose.pop()
            for other in others.pop(owner):
                ends[other].discard(owner)
                if not ends[other]:
                    loose.append(other)
            del ends[owner]
    return set(above)


def _way_back(parents: dict[str, set[str]], *, start: str, goal: str) -> list[str]:
    """Return the owners on the way up from `start` to `goal`, or none.

    For an owner without a Budget the parent follows from its path.
    """
    came_from: dict[str, str] = {start: ""}
    todo = [start]
    while todo:
        owner = todo.pop(0)
        if owner == goal:
            way = [owner]
            while came_from[way[0]]:
                way.insert(0, came_from[way[0]])
            return way
        for parent in sorted(parents.get(owner, default_parents(owner))):
            if parent not in came_from:
                came_from[parent] = owner
                todo.append(parent)
    return []


def _read(raw: object) -> tuple[Budget | None, list[Problem]]:
    problems: list[Problem] = []
    whole = Fields(raw, "", problems)
    spec = whole.inside("spec", required=True)
    stamped = stamps(raw)
    key = f"{stamped.namespace}/{stamped.name}"
    owner = spec.need("owner", readers.owner)
    parents = spec.set_of("parents", readers.owner)
    if owner is not None and owner in parents:
        spec.note("parents", "an owner cannot be its own parent; remove it")
    namespaces = spec.set_of("namespaces", readers.namespace)
    envelopes = _read_envelopes(spec, key=key, owner=owner or "")
    aggregates = _read_aggregates(spec, key=key, envelopes=envelopes)
    spec.finish()
    if problems or spec.is_void:
        return None, problems or [no_spec(raw)]
    assert owner is not None, "a missing owner is a problem"
    wire_spec = canonical(exact(part(raw, "spec")))
    if len(wire_spec) > SPEC_BYTES_MAX:
        remedy = f"use at most {SPEC_BYTES_MAX}; an owner may have several Budgets"
        return None, [Problem(path="spec", value=f"{len(wire_spec)} bytes", remedy=remedy)]
    budget = Budget(
        namespace=stamped.namespace,
        name=stamped.name,
        owner=owner,
        parents=parents if spec.has("parents") else default_parents(owner),
        namespaces=namespaces,
        envelopes=tuple(envelopes.values()),
        aggregates=tuple(aggregates),
        uid=stamped.uid,
        version=stamped.version,
        wire_spec=wire_spec,
    )
    return budget, []


def _read_envelopes(spec: Fields, *, key: str, owner: str) -> dict[str, Envelope]:
    """Read the envelopes by name, including wrong ones, so that aggregates may refer to them."""
    found: dict[str, Envelope] = {}
    for fields in spec.each("envelopes"):
        name = fields.need("name", readers.word)
        envelope = _read_envelope(fields, key=f"{key}/{name}", owner=owner)
        if name is None:
            continue
        if name in found:
            fields.note("name", "another envelope of this Budget has this name; use another name")
        found[name] = envelope
    return found


def _read_envelope(fields: Fields, *, key: str, owner: str) -> Envelope:
    flavor = fields.need("flavor", readers.word)
    concurrency = fields.need("concurrency", readers.gpus)
    selector = fields.inside("selector")
    start = fields.take("start", readers.instant, 0)
    end = fields.take("end", readers.instant, FOREVER)
    if end <= start and not fields.is_wrong("start", "end"):
        fields.note("end", "the window ends before it starts; use an end after its start")
    lending = _read_lending(fields.inside("lending"))
    envelope = Envelope(
        key=key,
        owner=owner,
        flavor=flavor or "",
        concurrency=concurrency or 0,
        region=selector.take("region", readers.word, None),
        cluster=selector.take("cluster", readers.word, None),
        max_gpu_ms=fields.take("maxGPUHours", readers.gpu_hours, None),
        start=start,
        end=end,
        sharing=fields.take("sharing", _SHARING, Sharing.FAMILY),
        lending=lending,
    )
    selector.finish()
    fields.finish()
    return envelope


def _read_lending(fields: Fields) -> Lending:
    lending = Lending(
        allow=fields.take("allow", readers.flag, False),
        to=fields.set_of("to", readers.owner_glob),
        max_concurrency=fields.take("maxConcurrency", readers.gpus, None),
        max_gpu_ms=fields.take("maxGPUHours", readers.gpu_hours, None),
    )
    fields.finish()
    return lending


def _read_aggregates(spec: Fields, *, key: str, envelopes: dict[str, Envelope]) -> list[Aggregate]:
    found: list[Aggregate] = []
    names: set[str] = set()
    for fields in spec.each("aggregateCaps"):
        name = fields.need("name", readers.word)
        if name is not None and name in names:
            fields.note("name", "another aggregate of this Budget has this name; use another name")
        names.add(name or "")
        flavor = fields.need("flavor", readers.word)
        members = fields.set_of("envelopes", readers.word)
        most = fields.need("maxConcurrency", readers.gpus)
        if not fields.is_void:
            _check_members(fields, members, flavor=flavor, envelopes=envelopes)
        fields.finish()
        found.append(
            Aggregate(
                key=f"{key}/{name}",
                flavor=flavor or "",
                members=tuple(f"{key}/{member}" for member in members),
                max_concurrency=most or 0,
            )
        )
    return found


def _check_members(
    fields: Fields, members: tuple[str, ...], *, flavor: str | None, envelopes: dict[str, Envelope]
) -> None:
    if fields.is_wrong("envelopes"):
        return
    if not members:
        fields.note("envelopes", "name at least one envelope of this Budget")
    for index, member in enumerate(members):
        envelope = envelopes.get(member)
        if envelope is None:
            remedy = "this Budget has no such envelope; use one of: "
            remedy += ", ".join(list(envelopes)[:NAMES_SHOWN_MAX]) or "none"
        elif flavor and envelope.flavor and envelope.flavor != flavor:
            remedy = f"its flavor is {envelope.flavor}, not {flavor}; leave it out"
        else:
            continue
        path = f"{fields.at('envelopes')}[{index}]"
        fields.problems.append(Problem(path=path, value=shown(member), remedy=remedy))
