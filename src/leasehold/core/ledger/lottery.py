"""The lottery: fair draws that anybody can repeat from the Resolution alone (R5, R7).

`resolve` draws with it, `odds` estimates chances with it, `leasehold lottery verify` replays it.
`docs/ledger-format.md` is normative. No library random generator is used, because other languages
must get the same numbers.
"""

import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from leasehold.core.ledger.chain import Digest
from leasehold.core.resolutions import Bundle, Draw, Resolution, SweepWidth
from leasehold.core.units import Instant, format_instant

VERSION = "leasehold/lottery/v1"
_HEX = re.compile(r"(?:[0-9a-f]{2})+")
_RANGE = 1 << 64  # size of the range of a hash's first eight bytes


def nonce(key: bytes, subject: str, batch: int) -> str:
    """Return the nonce, the secret part of a seed. It belongs to one announcement."""
    return hmac.new(key, f"{subject}\n{batch}".encode(), hashlib.sha256).hexdigest()


def commitment(nonce_hex: str) -> str:
    """Return what is published about the nonce: its SHA-256.

    It is published before the ledger digest is known that goes into the seed as well.
    """
    return hashlib.sha256(bytes.fromhex(nonce_hex)).hexdigest()


def seed(subject: str, instant: Instant, ledger_digest: Digest, nonce_hex: str) -> str:
    lines = (VERSION, subject, format_instant(instant), ledger_digest, nonce_hex)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def number(seed_hex: str, k: int, n: int) -> int:
    """Return draw number `k`: a uniformly distributed number below `n`.

    A hash value above the largest multiple of `n` is rejected and the next one taken, because
    otherwise the remainder would favour small numbers.
    """
    assert n > 0, "a draw needs something to draw from"
    limit = _RANGE - _RANGE % n
    i = 0
    while True:
        digest = hashlib.sha256(f"{seed_hex}\n{k}\n{i}".encode()).digest()
        value = int.from_bytes(digest[:8], "big")
        if value < limit:
            return value % n
        i += 1


class Urn:
    """The bundles that can still be drawn; `draw` takes one (R5).

    After a group was drawn, the bundles of its sweep are counted again (R4).
    """

    def __init__(
        self,
        conflict_set: Mapping[str, Sequence[Bundle]],
        sweeps: Sequence[SweepWidth] = (),
        *,
        owned_last: bool = False,
    ) -> None:
        self._left = {owner: list(found) for owner, found in sorted(conflict_set.items())}
        self._widths = {each.run: each.width for each in sweeps}
        self._sweeps = {each.run: each for each in sweeps}
        self._owned_last = owned_last
        self._k = 0

    def draw(self, seed_hex: str) -> tuple[str, Bundle] | None:
        """Draw an owner uniformly, then one of its bundles uniformly; None if no bundle is left."""
        choices = self.choices()
        if not choices:
            return None
        owner = list(choices)[number(seed_hex, self._k, len(choices))]
        bundle = choices[owner][number(seed_hex, self._k + 1, len(choices[owner]))]
        self._k += 2
        self.take(owner, bundle)
        return owner, bundle

    def choices(self) -> dict[str, list[Bundle]]:
        """Return the bundles among which the next draw chooses, by owner, in order.

        With `owned_last`, bundles paid by their owners' own envelopes alone come after all others
        (Q10).
        """
        found = {owner: sorted(left, key=bundle_order) for owner, left in self._left.items()}
        if self._owned_last:
            first = {o: [each for each in left if not each.is_owned] for o, left in found.items()}
            found = first if any(first.values()) else found
        return {owner: bundles for owner, bundles in found.items() if bundles}

    def take(self, owner: str, bundle: Bundle) -> None:
        """Remove a drawn bundle.

        After a group was drawn, its sweep may be unable to give up another one without going below
        its minimum. Then what is left of the sweep becomes one bundle (R4).
        """
        left = [each for each in self._left[owner] if each != bundle]
        sweep = self._sweeps.get(bundle.run_key)
        if bundle.group is not None and sweep is not None:
            width = self._widths[bundle.run_key] = self._widths[bundle.run_key] - bundle.gpus
            mine = [each for each in left if each.run_key == bundle.run_key]
            if mine and width - sweep.group < sweep.minimum:
                is_owned = all(each.is_owned for each in mine)
                whole = replace(bundle, group=None, gpus=width, is_owned=is_owned)
                left = [*(each for each in left if each not in mine), whole]
        self._left[owner] = left

    def copy(self) -> "Urn":
        """Return an independent urn in the same state."""
        found = Urn(self._left, tuple(self._sweeps.values()), owned_last=self._owned_last)
        found._widths, found._k = dict(self._widths), self._k
        return found


def bundle_order(bundle: Bundle) -> tuple[str, str, int]:
    """Return the sort key: namespace, run, group index as a number (-1 for a whole run)."""
    return (bundle.namespace, bundle.run, -1 if bundle.group is None else bundle.group)


def replay(resolution: Resolution) -> list[str]:
    """Repeat the draws of a Resolution from the inputs it records.

    Returns a text for each difference from the record; none if the draws are correct.
    """
    lottery = resolution.lottery
    if lottery is None:
        return []
    problems = []
    if lottery.subject != resolution.subject:
        problems.append(f"derivedFrom.subject {lottery.subject!r} is not {resolution.subject!r}")
    if lottery.instant != resolution.instant:
        problems.append("derivedFrom.instant is not the resolution's instant")
    if not _HEX.fullmatch(lottery.nonce):
        problems.append(f"derivedFrom.nonce {lottery.nonce[:80]!r} is not lower-case hexadecimal")
    elif commitment(lottery.nonce) != lottery.commitment:
        problems.append("commitment is not the SHA-256 of the nonce")
    derived = seed(lottery.subject, lottery.instant, lottery.ledger_digest, lottery.nonce)
    if derived != lottery.seed:
        problems.append(f"seed {lottery.seed} is not the derived one, {derived}")
    if not lottery.draws:
        problems.append("draws: the lottery has no draws")
    urn = Urn(dict(lottery.conflict_set), lottery.sweeps, owned_last=lottery.owned_last)
    for place, recorded in enumerate(lottery.draws):
        drawn = urn.draw(derived)
        if drawn is None:
            return [*problems, f"draws[{place}]: nothing was left to draw"]
        owner, bundle = drawn
        expected = Draw(owner=owner, bundle=bundle.name, gpus=bundle.gpus)
        if recorded != expected:
            return [*problems, f"draws[{place}]: {recorded} is not {expected}"]
    return problems
