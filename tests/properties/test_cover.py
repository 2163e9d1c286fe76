"""cover against a model that keeps lists: who is asked, in what order, and for how much."""

from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.properties.worlds import FLAVOR, NOW, a_budget, a_lease, a_run, a_world

from leasehold.core.facts import Aggregate, Envelope, Funding, Lending, Relation, Sharing
from leasehold.core.funding.cover import cover
from leasehold.core.requests import FundingRequest
from leasehold.core.units import HOUR
from leasehold.core.verdicts import Covered
from leasehold.core.world.world import World

OWNERS = ("o", "o:a", "o:a:x", "o:a:y", "o:b", "p:q")
HORIZON = 24 * HOUR
GLOBS = ((), ("*",), ("*",), ("o:a:*",), ("p:*",))

some_hours = st.sampled_from((None, None, 0, 9 * HOUR, 30 * HOUR, 60 * HOUR, 99 * HOUR))
lendings = st.builds(
    Lending,
    allow=st.sampled_from((True, True, False)),
    to=st.sampled_from(GLOBS),
    max_concurrency=st.sampled_from((None, None, 1, 3)),
    max_gpu_ms=some_hours,
)
envelope_rows = st.tuples(
    st.sampled_from(OWNERS),
    st.integers(0, 5),  # concurrency
    st.sampled_from((None, None, None, "r", "s")),  # region
    st.sampled_from((0, 0, 0, 0, 0, NOW, NOW + 1)),  # start
    st.sampled_from((1 << 62, 1 << 62, 1 << 62, NOW, NOW + HOUR, NOW + 30 * HOUR)),  # end
    some_hours,
    st.sampled_from(Sharing),
    lendings,
)
# envelope, borrower, relation, GPUs, hours that it may run in all (it began one hour ago)
lease_rows = st.tuples(
    st.integers(0, 7),
    st.sampled_from(OWNERS),
    st.sampled_from(Relation),
    st.integers(1, 3),
    st.sampled_from((None, 2, 9)),
)
fundings = st.builds(
    Funding,
    allow_borrow=st.sampled_from((True, True, True, True, False)),
    max_borrow_gpus=st.sampled_from((None, None, 0, 2, 4, 6)),
    sponsors=st.lists(st.sampled_from(OWNERS), min_size=1, max_size=3, unique=True).map(tuple),
)
asks = st.builds(
    FundingRequest,
    owner=st.sampled_from((*OWNERS, "o:c", "q")),
    flavor=st.just(FLAVOR),
    region=st.sampled_from("rs"),
    cluster=st.just("c"),
    gpus=st.integers(1, 16),
    start=st.just(NOW),
    span=st.sampled_from((None, HOUR, 5 * HOUR)),
    funding=fundings,
    borrowed_already=st.integers(0, 3),
)
Rows = list[tuple[str, int, str | None, int, int, int | None, Sharing, Lending]]
LeaseRows = list[tuple[int, str, Relation, int, int | None]]


class Model:
    """Envelopes, caps over pairs of them, and open leases, as plain lists."""

    def __init__(self, rows: Rows, leases: LeaseRows, caps: list[int]) -> None:
        self.envelopes = [
            Envelope(
                key=f"n/{row[0].replace(':', '-')}/e{place}",
                owner=row[0],
                flavor=FLAVOR,
                concurrency=row[1],
                region=row[2],
                start=row[3],
                end=row[4],
                max_gpu_ms=row[5],
                sharing=row[6],
                lending=row[7],
            )
            for place, row in enumerate(rows)
        ]
        self.leases = [
            (self.envelopes[place % len(rows)], owner, relation, gpus, hours)
            for place, owner, relation, gpus, hours in leases
            if self.envelopes[place % len(rows)].start < NOW
        ]
        self.aggregates: list[Aggregate] = []
        for owner, cap in zip(OWNERS, caps):
            members = tuple(each.key for each in self.envelopes if each.owner == owner)
            if members:
                key = f"n/{owner.replace(':', '-')}/all"
                self.aggregates.append(
                    Aggregate(key=key, flavor=FLAVOR, members=members, max_concurrency=cap)
                )

    def world(self) -> World:
        budgets = [
            a_budget(
                owner,
                *(each for each in self.envelopes if each.owner == owner),
                aggregates=tuple(
                    each for each in self.aggregates
                    if each.key == f"n/{owner.replace(':', '-')}/all"
                ),
            )
            for owner in sorted({each.owner for each in self.envelopes})
        ]  # fmt: skip
        world = a_world([], budgets)
        for place, (envelope, owner, relation, gpus, hours) in enumerate(self.leases):
            run = a_run(f"r{place}", owner, span=None if hours is None else hours * HOUR)
            world.put_run(run)
            lease = a_lease(
                run, "elsewhere", range(gpus), batch=1, index=place, payer=envelope.key,
                relation=relation,
            )  # fmt: skip
            world.fold_open(lease)
        return world

    def walk(self, ask: FundingRequest) -> Iterator[tuple[Envelope, Relation]]:
        """The published order, each envelope where it is first met."""
        met: set[str] = set()
        for relation, owners in self._steps(ask):
            found = sorted(
                (each for each in self.envelopes if each.owner in owners and each.key not in met),
                key=lambda each: (each.end, each.key.split("/")),
            )
            for each in found:
                hidden = relation is Relation.SHARED and each.sharing is Sharing.NONE
                cousin = owners == {*OWNERS}
                admitted = _is_kin(each.owner, ask.owner) and _admits(each, ask.owner)
                if not hidden and (not cousin or admitted):
                    met.add(each.key)
                    yield each, relation

    def _steps(self, ask: FundingRequest) -> Iterator[tuple[Relation, set[str]]]:
        yield Relation.OWNED, {ask.owner}
        for level in [_siblings(ask.owner), *({each} for each in _above(ask.owner))]:
            yield Relation.SHARED, level
        if ask.funding.allow_borrow and ask.funding.sponsors:
            sponsors = [each for each in ask.funding.sponsors if each != ask.owner]
            for sponsor in sponsors:
                yield Relation.BORROWED, {sponsor}
            for height in range(3):
                for sponsor in sponsors:
                    yield Relation.BORROWED, {*_above(sponsor)[height : height + 1]} - {ask.owner}
            yield Relation.BORROWED, {*OWNERS}

    def in_order(self, ask: FundingRequest) -> list[tuple[Envelope, Relation]]:
        """Kin that pay elsewhere come after kin that pay here, and before lenders."""
        walked = list(self.walk(ask))
        return sorted(
            walked,
            key=lambda each: (
                2 * (each[1] is Relation.BORROWED) or int(each[0].region not in (None, ask.region))
            ),
        )

    def most(
        self, ask: FundingRequest, envelope: Envelope, relation: Relation, taken: dict[str, int]
    ) -> int:
        """The least of everything that caps it."""
        if envelope.region not in (None, ask.region) or not envelope.start <= NOW < envelope.end:
            return 0
        lent = relation is Relation.BORROWED
        caps = [envelope.concurrency - self.gpus({envelope.key})]
        caps += [
            cap.max_concurrency
            - self.gpus(set(cap.members))
            - sum(taken.get(key, 0) for key in cap.members)
            for cap in self.aggregates
            if envelope.key in cap.members
        ]
        span = min(ask.span or HORIZON, envelope.end - NOW)
        if envelope.max_gpu_ms is not None:
            caps.append(max(0, envelope.max_gpu_ms - self.hours(envelope)) // span)
        if lent:
            lending = envelope.lending
            caps.append(ask.gpus if _admits(envelope, ask.owner) else 0)
            if lending.max_concurrency is not None:
                caps.append(lending.max_concurrency - self.gpus({envelope.key}, lent=True))
            if lending.max_gpu_ms is not None:
                caps.append(max(0, lending.max_gpu_ms - self.hours(envelope, lent=True)) // span)
        return max(0, min(caps))

    def gpus(self, keys: set[str], *, lent: bool = False) -> int:
        return sum(
            gpus
            for envelope, _, relation, gpus, _ in self.leases
            if envelope.key in keys and (relation is Relation.BORROWED or not lent)
        )

    def hours(self, envelope: Envelope, *, lent: bool = False) -> int:
        """Used in the hour that has passed, and what may still be used within the window."""
        total = 0
        for payer, _, relation, gpus, limit in self.leases:
            if payer is envelope and (relation is Relation.BORROWED or not lent):
                end = NOW + HORIZON if limit is None else NOW + (limit - 1) * HOUR
                total += gpus * (HOUR + max(0, min(end, envelope.end) - NOW))
        return total

    def pay(self, ask: FundingRequest) -> tuple[list[tuple[str, int, Relation]], int]:
        """Who pays how much in what order, and how much nobody pays for."""
        left, taken, paid = ask.gpus, dict[str, int](), []
        limit = ask.funding.max_borrow_gpus
        borrow = 1000 if limit is None else max(0, limit - ask.borrowed_already)
        for envelope, relation in self.in_order(ask):
            lent = relation is Relation.BORROWED
            give = min(left, self.most(ask, envelope, relation, taken), borrow if lent else left)
            if give:
                taken[envelope.key] = give
                paid.append((envelope.key, give, relation))
                left -= give
                borrow -= give if lent else 0
        return paid, left


def _above(owner: str) -> list[str]:
    parts = owner.split(":")
    return [":".join(parts[:count]) for count in range(len(parts) - 1, 0, -1)]


def _siblings(owner: str) -> set[str]:
    above = _above(owner)
    return {each for each in OWNERS if above and each != owner and _above(each)[:1] == above[:1]}


def _is_kin(one: str, other: str) -> bool:
    return one != other and one.split(":")[0] == other.split(":")[0]


def _admits(envelope: Envelope, owner: str) -> bool:
    """The globs of `GLOBS` all end in their only star."""
    lending = envelope.lending
    return lending.allow and any(owner.startswith(glob[:-1]) for glob in lending.to)


@given(
    rows=st.lists(envelope_rows, min_size=4, max_size=12),
    leases=st.lists(lease_rows, max_size=5),
    caps=st.lists(st.sampled_from((2, 4, 6, 30)), max_size=6),
    ask=asks,
)
@settings(max_examples=400)
def test_cover_pays_as_the_lists_say(
    rows: Rows, leases: LeaseRows, caps: list[int], ask: FundingRequest
) -> None:
    model = Model(rows, leases, caps)
    answer = cover(model.world(), ask, now=NOW)
    paid, short_by = model.pay(ask)
    walked = [envelope.key for envelope, _ in model.in_order(ask)]
    keys = [step.envelope for step in answer.trace]
    assert keys == walked[: len(keys)]
    assert len(set(keys)) == len(keys)
    if isinstance(answer, Covered):
        assert [(each.envelope, each.gpus, each.relation) for each in answer.segments] == paid
        assert sum(each.gpus for each in answer.segments) == ask.gpus
        assert answer.trace[-1].taken == answer.segments[-1].gpus
    else:
        assert answer.short_by == short_by > 0
        assert [(s.envelope, s.taken, s.relation) for s in answer.trace if s.taken] == paid
        assert keys == walked


@given(
    rows=st.lists(envelope_rows, min_size=4, max_size=12),
    leases=st.lists(lease_rows, max_size=5),
    caps=st.lists(st.sampled_from((2, 4, 6, 30)), max_size=6),
    ask=asks,
)
@settings(max_examples=200)
def test_whoever_pays_stays_within_every_cap(
    rows: Rows, leases: LeaseRows, caps: list[int], ask: FundingRequest
) -> None:
    """Not by comparing with another walk, but by looking at the world with the payment made."""
    model = Model(rows, leases, caps)
    answer = cover(model.world(), ask, now=NOW)
    segments = answer.segments if isinstance(answer, Covered) else ()
    known = {each.key: each for each in model.envelopes}
    limit = None if ask.span is None else ask.span // HOUR + 1
    for each in segments:
        model.leases.append((known[each.envelope], ask.owner, each.relation, each.gpus, limit))
    for each in segments:
        envelope, lent = known[each.envelope], each.relation is Relation.BORROWED
        assert model.gpus({envelope.key}) <= envelope.concurrency
        spent = model.hours(envelope) - each.gpus * HOUR  # the new lease begins only now
        assert envelope.max_gpu_ms is None or spent <= envelope.max_gpu_ms
        lending = envelope.lending
        if lent and lending.max_concurrency is not None:
            assert model.gpus({envelope.key}, lent=True) <= lending.max_concurrency
        if lent and lending.max_gpu_ms is not None:
            assert model.hours(envelope, lent=True) - each.gpus * HOUR <= lending.max_gpu_ms
        for cap in model.aggregates:
            if envelope.key in cap.members:
                assert model.gpus(set(cap.members)) <= cap.max_concurrency
    if segments and ask.funding.max_borrow_gpus is not None:
        lent_now = sum(each.gpus for each in segments if each.relation is Relation.BORROWED)
        assert not lent_now or lent_now + ask.borrowed_already <= ask.funding.max_borrow_gpus
