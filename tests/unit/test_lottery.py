"""The lottery: fair, repeatable, and refused if it does not follow from its record."""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

import msgspec
import pytest

from leasehold.core.ledger import lottery
from leasehold.core.resolutions import (
    Bundle,
    CutCause,
    Draw,
    Lottery,
    Resolution,
    SweepWidth,
)
from leasehold.core.units import parse_instant

KEY = b"a key for tests"
INSTANT = parse_instant("2026-11-15T01:15:00.000Z")
CHI_SQUARE_9_999 = 27.877  # 9 degrees of freedom, one in a thousand


def a_bundle(name: str, gpus: int = 8) -> Bundle:
    run, mark, group = name.partition("#")
    namespace, _, run = run.partition("/")
    return Bundle(
        namespace=namespace, run=run, uid="u", group=int(group) if mark else None, gpus=gpus
    )


CONFLICT = {
    "x:one": (a_bundle("x/train", 16),),
    "y:two": tuple(a_bundle(f"y/sweep#{group}") for group in (10, 9, 2)),
}


def draw_order(
    seed: str, conflict_set: Mapping[str, Sequence[Bundle]], sweeps: Sequence[SweepWidth] = ()
) -> Iterator[tuple[str, Bundle]]:
    """Yield every draw until the urn is empty."""
    urn = lottery.Urn(conflict_set, sweeps)
    while (drawn := urn.draw(seed)) is not None:
        yield drawn


def a_resolution(draws: int = 4) -> Resolution:
    assert INSTANT is not None
    nonce = lottery.nonce(KEY, "z/train-16-4702", 4702)
    seed = lottery.seed("z/train-16-4702", INSTANT, "9f" * 32, nonce)
    drawn = islice(draw_order(seed, CONFLICT), draws)
    return Resolution(
        name="train-16-4702-4711",
        batch=4711,
        cause=CutCause.RESERVATION,
        subject="z/train-16-4702",
        beneficiary="z/train-16",
        beneficiary_uid="u",
        flavor="H100",
        domains=("r/c/a",),
        envelope="",
        instant=INSTANT,
        deficit=16,
        lottery=Lottery(
            seed=seed,
            subject="z/train-16-4702",
            instant=INSTANT,
            ledger_digest="9f" * 32,
            nonce=nonce,
            commitment=lottery.commitment(nonce),
            announced_in=4702,
            conflict_set=tuple(CONFLICT.items()),
            draws=tuple(Draw(owner=o, bundle=b.name, gpus=b.gpus) for o, b in drawn),
        ),
    )


def test_seed_is_the_hash_of_five_lines() -> None:
    assert INSTANT is not None
    text = f"leasehold/lottery/v1\na/b\n2026-11-15T01:15:00.000Z\n{'9f' * 32}\n{'01' * 32}"
    assert lottery.seed("a/b", INSTANT, "9f" * 32, "01" * 32) == (
        hashlib.sha256(text.encode()).hexdigest()
    )


def test_commitment_is_the_hash_of_the_nonce_bytes() -> None:
    assert lottery.commitment("00ff") == hashlib.sha256(b"\x00\xff").hexdigest()
    assert lottery.nonce(KEY, "a/b", 1) != lottery.nonce(KEY, "a/b", 2)


def test_numbers_are_uniform_over_many_seeds() -> None:
    counts = Counter(lottery.number(f"{seed:064x}", 0, 10) for seed in range(10_000))
    chi = sum((counts[value] - 1000) ** 2 / 1000 for value in range(10))
    assert chi < CHI_SQUARE_9_999


def test_number_outside_the_unbiased_range_is_drawn_again() -> None:
    """With n just above half the range, about half of the first tries must be discarded."""
    n = (1 << 63) + 1
    seeds = [f"{seed:064x}" for seed in range(64)]
    firsts = [
        int.from_bytes(hashlib.sha256(f"{seed}\n0\n0".encode()).digest()[:8], "big")
        for seed in seeds
    ]
    assert any(first >= n for first in firsts)
    for seed, first in zip(seeds, firsts):
        number = lottery.number(seed, 0, n)
        assert number == first if first < n else number < n


def test_owners_are_drawn_equally_regardless_of_their_bundle_count() -> None:
    firsts = Counter(next(draw_order(f"{s:064x}", CONFLICT))[0] for s in range(4000))
    assert abs(firsts["x:one"] - 2000) < 150


def test_bundles_of_one_owner_are_drawn_equally() -> None:
    only = {"y:two": CONFLICT["y:two"]}
    firsts = Counter(next(draw_order(f"{s:064x}", only))[1].name for s in range(3000))
    assert all(abs(count - 1000) < 120 for count in firsts.values())
    assert len(firsts) == 3


def test_every_bundle_is_drawn_exactly_once() -> None:
    drawn = list(draw_order("ab" * 32, {**CONFLICT, "nobody": ()}))
    assert sorted(bundle.name for _, bundle in drawn) == [
        "x/train", "y/sweep#10", "y/sweep#2", "y/sweep#9",
    ]  # fmt: skip


def test_group_indices_are_ordered_as_numbers() -> None:
    ordered = sorted(CONFLICT["y:two"], key=lottery.bundle_order)
    assert [bundle.group for bundle in ordered] == [2, 9, 10]


def test_draws_do_not_depend_on_the_order_of_the_conflict_set() -> None:
    turned = {owner: tuple(reversed(CONFLICT[owner])) for owner in reversed(list(CONFLICT))}
    seed = "cd" * 32
    assert list(draw_order(seed, turned)) == list(draw_order(seed, CONFLICT))


def test_honest_resolution_replays_without_problems() -> None:
    for draws in range(1, 5):
        assert lottery.replay(a_resolution(draws)) == []
    assert lottery.replay(msgspec.structs.replace(a_resolution(), lottery=None)) == []


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("subject", "z/other", "subject"),
        ("instant", 5, "instant"),
        ("nonce", "00" * 32, "commitment"),
        ("ledger_digest", "00" * 32, "seed"),
        ("seed", "00" * 32, "seed"),
        ("draws", (Draw(owner="x:one", bundle="x/other", gpus=16),), "draws[0]"),
        ("conflict_set", (), "nothing was left"),
    ],
)
def test_tampered_lottery_record_is_reported(field: str, value: object, said: str) -> None:
    honest = a_resolution()
    assert honest.lottery is not None
    forged = msgspec.structs.replace(honest.lottery, **{field: value})
    problems = lottery.replay(msgspec.structs.replace(honest, lottery=forged))
    assert any(said in problem for problem in problems)
