"""`budgets` (usage, balance, tree): used, lent, borrowed, left and committed, and until when."""

from collections.abc import Iterable
from typing import TypedDict

from leasehold.control.questions.answers.money import (
    BalanceAnswer,
    EnvelopeBalance,
    EnvelopeUsage,
    FamilyRow,
    FamilySum,
    LentTo,
    OwnerUsage,
    TreeAnswer,
    UsageAnswer,
)
from leasehold.control.questions.answers.shape import GpuAmount
from leasehold.control.questions.formats import gpu_time, instant
from leasehold.control.views.numbers import EnvelopeView, envelope_view
from leasehold.core.facts import Envelope, EnvelopeKey, Relation, Role
from leasehold.core.objects.owners import glob_admits
from leasehold.core.preemption.overdraft import next_money_event
from leasehold.core.units import GpuMs, Instant, format_gpu_hours
from leasehold.core.world.world import World

FORMS = ("usage", "balance", "tree")


def budgets(
    world: World, now: Instant, *, form: str, owner: str = "", namespace: str = ""
) -> UsageAnswer | BalanceAnswer | TreeAnswer:
    """Return the budgets in one of three forms.

    `owner`: only owners that match this glob. `namespace`: only Budgets of this namespace.
    """
    assert form in FORMS, form

    def wants(envelope: Envelope) -> bool:
        lies = namespace in ("", envelope.key.partition("/")[0])
        return lies and (not owner or glob_admits(owner, envelope.owner))

    there = [world.envelopes[key] for key in sorted(world.envelopes)]
    found = [envelope for envelope in there if wants(envelope)]
    if form == "usage":
        found += [envelope for envelope in _gone(world) if wants(envelope)]
        mine = {envelope.owner for envelope in found}
        return UsageAnswer(
            items=[_usage(world, envelope, now) for envelope in found],
            owners=[row for row in _owners(world, owner) if not namespace or row.owner in mine],
        )
    if form == "balance":
        return BalanceAnswer(items=[_balance(world, envelope.key, now) for envelope in found])
    mine = {envelope.owner for envelope in found}
    return TreeAnswer(
        items=[row for row in _tree(world, now, owner) if not namespace or row.owner in mine]
    )


def _gone(world: World) -> list[Envelope]:
    """Return deleted envelopes that still pay for open leases, with concurrency 0."""
    found = []
    for key in sorted(world.open_by_payer):
        if key not in world.envelopes:
            lease = world.leases[next(iter(world.open_by_payer[key]))]
            state = world.fleet.nodes.get(lease.node)
            flavor = state.node.flavor if state is not None else ""
            found.append(Envelope(key=key, owner=lease.payer_owner, flavor=flavor, concurrency=0))
    return found


def _usage(world: World, envelope: Envelope, now: Instant) -> EnvelopeUsage:
    key = envelope.key
    view = envelope_view(world, key, now)
    leases = [world.leases[name] for name in world.open_by_payer.get(key, ())]
    overdraft = world.overdrafts.get(key)
    return EnvelopeUsage(
        **_identity(envelope),
        concurrency=envelope.concurrency,
        used=view.used,
        shared=sum(each.gpus for each in leases if each.relation is Relation.SHARED),
        spare=sum(each.gpus for each in leases if each.role is Role.SPARE),
        lent=view.lent,
        lent_to=[
            LentTo(owner=name, gpus=gpus)
            for name, gpus in sorted(world.accounts.of(key).borrowers.items())
        ],
        free=max(0, view.free),
        claimed=sum(claim.gpus for claim in world.memory.claims if claim.payer == key),
        overdrawn=view.overdrawn,
        overdrawn_since=None if overdraft is None else instant(overdraft.since),
        state=_state(envelope, view, now) if key in world.envelopes else "Gone",
        opens=instant(envelope.start or None),
        until=instant(envelope.end),
    )


def _balance(world: World, key: EnvelopeKey, now: Instant) -> EnvelopeBalance:
    envelope = world.envelopes[key]
    view = envelope_view(world, key, now)
    account = world.accounts.of(key)
    return EnvelopeBalance(
        **_identity(envelope),
        limit=_at_most(envelope.max_gpu_ms),
        used=_hours(view.gpu_ms),
        committed=_hours(view.committed_ms),
        left=_at_most(view.left_ms),
        lending_limit=_at_most(envelope.lending.max_gpu_ms),
        lent=_hours(account.lent_used_ms(now)),
        opens=instant(envelope.start or None),
        until=instant(envelope.end),
        pays_until=instant(next_money_event(world, key, now)),
    )


class _Identity(TypedDict):
    envelope: EnvelopeKey
    owner: str
    flavor: str
    region: str
    cluster: str


def _identity(envelope: Envelope) -> _Identity:
    return {
        "envelope": envelope.key,
        "owner": envelope.owner,
        "flavor": envelope.flavor,
        "region": envelope.region or "",
        "cluster": envelope.cluster or "",
    }


def _at_most(amount: GpuMs | None) -> GpuAmount | None:
    return None if amount is None else _hours(amount)


def _hours(amount: GpuMs) -> GpuAmount:
    return GpuAmount(**gpu_time(amount))


def _state(envelope: Envelope, view: EnvelopeView, now: Instant) -> str:
    if view.overdrawn:
        return "Overdrawn"
    if now < envelope.start:
        return "NotOpen"
    return "Closed" if now >= envelope.end else "Open"


def _owners(world: World, owner: str) -> list[OwnerUsage]:
    """Return, for each owner, the GPUs that its runs hold, by relation to the payer, and the GPUs
    that its envelopes lend to others."""
    held: dict[str, dict[Relation, int]] = {}
    lent: dict[str, int] = {}
    for names in world.open_by_payer.values():
        for name in names:
            lease = world.leases[name]
            mine = held.get(lease.owner)
            if mine is None:
                mine = held[lease.owner] = dict.fromkeys(Relation, 0)
            mine[lease.relation] += lease.gpus
            if lease.relation is Relation.BORROWED:
                lent[lease.payer_owner] = lent.get(lease.payer_owner, 0) + lease.gpus
    known = {*held, *lent, *(each.owner for each in world.envelopes.values())}
    nothing = dict.fromkeys(Relation, 0)
    return [
        OwnerUsage(
            owner=name,
            gpus=sum(held.get(name, nothing).values()),
            owned=held.get(name, nothing)[Relation.OWNED],
            shared=held.get(name, nothing)[Relation.SHARED],
            borrowed=held.get(name, nothing)[Relation.BORROWED],
            lent=lent.get(name, 0),
        )
        for name in sorted(known)
        if not owner or glob_admits(owner, name)
    ]


class _Sum:
    """Totals over some envelopes: those of one owner, or also those of all its descendants."""

    def __init__(self, world: World, envelopes: Iterable[Envelope], now: Instant) -> None:
        self.concurrency = self.used = self.lent = 0
        self.gpu_ms: GpuMs = 0
        for envelope in envelopes:
            view = envelope_view(world, envelope.key, now)
            self.concurrency += envelope.concurrency
            self.used += view.used
            self.lent += view.lent
            self.gpu_ms += view.gpu_ms

    def row(self) -> FamilySum:
        return FamilySum(
            concurrency=self.concurrency,
            used=self.used,
            lent=self.lent,
            gpu_ms=self.gpu_ms,
            gpu_hours=format_gpu_hours(self.gpu_ms),
        )


def _tree(world: World, now: Instant, owner: str) -> list[FamilyRow]:
    """Return the owners from the top down, each below its first parent, with totals of all
    descendants."""
    tree = world.tree
    mine: dict[str, list[Envelope]] = {}
    for envelope in world.envelopes.values():
        mine.setdefault(envelope.owner, []).append(envelope)
    owners = set(mine)
    for name in list(owners):
        owners.update(each for level in tree.ancestors(name) for each in level)
    below: dict[str, set[str]] = {name: {name} for name in owners}
    children: dict[str, list[str]] = {}
    roots = []
    for name in sorted(owners):
        for level in tree.ancestors(name):
            for each in level:
                below[each].add(name)
        parents = tree.parents(name)
        if parents:
            children.setdefault(parents[0], []).append(name)
        else:
            roots.append(name)
    rows: list[FamilyRow] = []

    def walk(name: str, depth: int) -> None:
        if not owner or glob_admits(owner, name):
            of_all = [each for one in sorted(below[name]) for each in mine.get(one, ())]
            rows.append(
                FamilyRow(
                    owner=name,
                    depth=depth,
                    parents=list(tree.parents(name)),
                    envelopes=len(mine.get(name, ())),
                    own=_Sum(world, mine.get(name, ()), now).row(),
                    below=_Sum(world, of_all, now).row(),
                )
            )
        for child in children.get(name, ()):
            walk(child, depth + 1)

    for root in roots:
        walk(root, 0)
    return rows
