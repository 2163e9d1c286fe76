"""The draw: SHA-256 over the seed, a counter and a retry. No library random generator."""

from hashlib import sha256


def number(seed: str, k: int, below: int) -> int:
    """Draw number `k` below `below`."""
    most = (1 << 64) // below * below
    i = 0
    while True:
        digest = sha256(f"{seed}\n{k}\n{i}".encode()).digest()
        value = int.from_bytes(digest[:8], "big")
        if value < most:
            return value % below
        i += 1


class Urn:
    """Owners in order of name, an owner's bundles in order of (namespace, run, group)."""

    def __init__(self, seed: str, bundles: dict[str, list[tuple[str, str, int]]]) -> None:
        self.seed = seed
        self.left = {owner: sorted(names) for owner, names in bundles.items() if names}
        self.k = 0

    def draw(self) -> tuple[str, str, int] | None:
        """An owner uniformly, then one of its bundles uniformly; None when all are drawn."""
        owners = sorted(owner for owner, names in self.left.items() if names)
        if not owners:
            return None
        owner = owners[number(self.seed, self.k, len(owners))]
        names = self.left[owner]
        bundle = names.pop(number(self.seed, self.k + 1, len(names)))
        self.k += 2
        return bundle
