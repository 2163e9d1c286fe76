"""The lottery: draws from a seed. No library random generator."""

from hashlib import sha256

Bundle = tuple[str, str, int]  # namespace, run, group; group -1 is the whole run


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


def draw(seed: str, k: int, bundles: dict[str, list[Bundle]]) -> Bundle:
    """R5: draw an owner uniformly, then one of its bundles uniformly, by draws `k` and `k` + 1."""
    owners = sorted(bundles)
    owner = owners[number(seed, k, len(owners))]
    return sorted(bundles[owner])[number(seed, k + 1, len(bundles[owner]))]
