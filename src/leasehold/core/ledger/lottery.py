"""The lottery: fair draws that anybody can repeat from the Resolution alone.

`resolve` draws with it, forecasts estimate odds with it, `leasehold lottery verify` replays with
it. The rules are the normative text of `docs/ledger-format.md`; there is no library random
generator, because another language must get the same numbers.
"""

import hashlib
import hmac
import re
from collections.abc import Iterator, Mapping, Sequence

from leasehold.core.ledger.chain import Digest
from leasehold.core.resolutions import Bundle, Draw, Resolution
from leasehold.core.units import Instant, format_instant

VERSION = "leasehold/lottery/v1"
_HEX = re.compile(r"(?:[0-9a-f]{2})+")
_RANGE = 1 << 64  # of the first eight bytes of a hash


def nonce(key: bytes, subject: str, batch: int) -> str:
    """The secret part of the seed, bound to one announcement."""
    return hmac.new(key, f"{subject}\n{batch}".encode(), hashlib.sha256).hexdigest()


def commitment(nonce_hex: str) -> str:
    """What is published of the nonce before anybody can know the digest it will be mixed with."""
    return hashlib.sha256(bytes.fromhex(nonce_hex)).hexdigest()


def seed(subject: str, instant: Instant, ledger_digest: Digest, nonce_hex: str) -> str:
    lines = (VERSION, subject, format_instant(instant), ledger_digest, nonce_hex)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def number(seed_hex: str, k: int, n: int) -> int:
    """Draw number `k` below `n`, every value as likely as every other."""
    assert n > 0, "a draw needs something to draw from"
    limit = _RANGE - _RANGE % n
    i = 0
    while True:
        digest = hashlib.sha256(f"{seed_hex}\n{k}\n{i}".encode()).digest()
        value = int.from_bytes(digest[:8], "big")
        if value < limit:
            return value % n
        i += 1


def draw_order(
    seed_hex: str, conflict_set: Mapping[str, Sequence[Bundle]]
) -> Iterator[tuple[str, Bundle]]:
    """Draws (owner, bundle) without replacement until the set is empty or the caller stops."""
    left = [
        (owner, sorted(conflict_set[owner], key=bundle_order)) for owner in sorted(conflict_set)
    ]
    left = [(owner, bundles) for owner, bundles in left if bundles]
    k = 0
    while left:
        place = number(seed_hex, k, len(left))
        owner, bundles = left[place]
        bundle = bundles.pop(number(seed_hex, k + 1, len(bundles)))
        k += 2
        if not bundles:
            del left[place]
        yield owner, bundle


def bundle_order(bundle: Bundle) -> tuple[str, str, int]:
    """(namespace, run, group index as a number); a whole run has no index and no rival."""
    return (bundle.namespace, bundle.run, -1 if bundle.group is None else bundle.group)


def replay(resolution: Resolution) -> list[str]:
    """What in the record's lottery does not follow from the record; nothing when all does."""
    lottery = resolution.lottery
    if lottery is None:
        return []
    problems = []
    if lottery.subject != resolution.subject:
        problems.append(f"derivedFrom.subject {lottery.subject!r} is not {resolution.subject!r}")
    if lottery.instant != resolution.instant:
        problems.append("derivedFrom.instant is not the resolution's instant")
    if not _HEX.fullmatch(lottery.nonce):
        problems.append(f"derivedFrom.nonce {lottery.nonce[:80]!r} is not bytes in lower-case hex")
    elif commitment(lottery.nonce) != lottery.commitment:
        problems.append("commitment is not the SHA-256 of the nonce")
    derived = seed(lottery.subject, lottery.instant, lottery.ledger_digest, lottery.nonce)
    if derived != lottery.seed:
        problems.append(f"seed {lottery.seed} is not the derived one, {derived}")
    if not lottery.draws:
        problems.append("draws: there is a lottery and nothing was drawn")
    again = draw_order(derived, dict(lottery.conflict_set))
    for place, recorded in enumerate(lottery.draws):
        owner, bundle = next(again, ("", None))
        if bundle is None:
            return [*problems, f"draws[{place}]: nothing was left to draw"]
        expected = Draw(owner=owner, bundle=bundle.name, gpus=bundle.gpus)
        if recorded != expected:
            return [*problems, f"draws[{place}]: {recorded} is not {expected}"]
    return problems
