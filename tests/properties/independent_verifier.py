"""A verifier of chain and lottery written from `docs/ledger-format.md` alone.

On purpose it imports nothing of leasehold: if both agree, the document is complete.
"""

import hashlib
import json
from typing import Any


def canonical(value: Any) -> bytes:
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8")


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def check_chain(lines: Any, digest: str = "0" * 64) -> Any:
    """Return the digest after the last line, or the first seq that does not follow."""
    for line in lines:
        digest = sha(digest.encode() + b"\n" + canonical(line["batch"]))
        if digest != line["digest"]:
            return line["seq"]
    return digest


def draw_number(seed: str, k: int, n: int) -> int:
    i = 0
    while True:
        block = hashlib.sha256(f"{seed}\n{k}\n{i}".encode()).digest()
        value = int.from_bytes(block[:8], "big")
        if value < (2**64 // n) * n:
            return value % n
        i += 1


def bundle_key(entry: Any) -> tuple[str, str, int]:
    run, _, group = entry["bundle"].partition("#")
    namespace, _, name = run.partition("/")
    return (namespace, name, int(group or -1))


def check_lottery(spec: Any) -> bool:
    """Return whether seed, commitment and every draw follow from a Resolution's spec."""
    lottery = spec["lottery"]
    source = lottery["derivedFrom"]
    parts = (source["subject"], source["instant"], source["ledgerDigest"], source["nonce"])
    seed = sha("\n".join(("leasehold/lottery/v1", *parts)).encode())
    if seed != lottery["seed"] or sha(bytes.fromhex(source["nonce"])) != lottery["commitment"]:
        return False
    left = {o: sorted(b, key=bundle_key) for o, b in lottery["conflictSet"].items()}
    sweeps = {run: dict(sweep) for run, sweep in lottery.get("sweeps", {}).items()}
    k = 0
    for draw in lottery["draws"]:
        among = left
        if lottery.get("ownedLast"):
            first = {o: [e for e in b if not e.get("owned")] for o, b in left.items()}
            among = first if any(first.values()) else left
        owners = sorted(owner for owner in among if among[owner])
        owner = owners[draw_number(seed, k, len(owners))]
        entry = among[owner][draw_number(seed, k + 1, len(among[owner]))]
        k += 2
        if draw != {"owner": owner, "bundle": entry["bundle"], "gpus": entry["gpus"]}:
            return False
        left[owner] = without(left[owner], entry, sweeps)
    return True


def without(bundles: Any, drawn: Any, sweeps: Any) -> Any:
    """Return the bundles of an owner after a draw; those of the drawn sweep are recounted."""
    left = [each for each in bundles if each is not drawn]
    run, mark, _ = drawn["bundle"].partition("#")
    sweep = sweeps.get(run)
    if not mark or sweep is None:
        return left
    sweep["width"] -= drawn["gpus"]
    mine = [each for each in left if each["bundle"].partition("#")[0] == run]
    if not mine or sweep["width"] - sweep["group"] >= sweep["minimum"]:
        return left
    owned = all(each.get("owned") for each in mine)
    whole = {"bundle": run, "gpus": sweep["width"], "owned": owned}
    others = [each for each in left if each not in mine]
    return sorted([*others, whole], key=bundle_key)
