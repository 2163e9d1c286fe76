"""Canonical JSON and the digest chain over it: what makes the ledger checkable by anybody.

Called wherever something is committed, exported or verified. The rules are in
`docs/ledger-format.md`; a change here makes every ledger that exists unreadable.
"""

import hashlib

import msgspec

Digest = str  # SHA-256 in lower-case hex

GENESIS: Digest = "0" * 64  # the digest before the first batch

# Sorted by UTF-8 bytes, which is the order of code points; never escapes what JSON need not escape.
_encode = msgspec.json.Encoder(order="sorted").encode


def canonical(value: object) -> bytes:
    """JSON with sorted keys, no white space, UTF-8 unescaped, integers only."""
    _assert_exact(value)
    return _encode(value)


def next_digest(digest: Digest, canonical_bytes: bytes) -> Digest:
    """The digest after a batch, from the one before it."""
    assert len(digest) == 64, digest
    return hashlib.sha256(digest.encode() + b"\n" + canonical_bytes).hexdigest()


def digest_of(value: object) -> Digest:
    """SHA-256 over the canonical JSON of one value, as for a Resolution's spec."""
    return hashlib.sha256(canonical(value)).hexdigest()


def _assert_exact(value: object) -> None:
    """Two languages print one float in two ways; so none may be in what is hashed."""
    if isinstance(value, dict):
        for key, member in value.items():
            assert type(key) is str, key
            _assert_exact(member)
    elif isinstance(value, (list, tuple)):
        for member in value:
            _assert_exact(member)
    else:
        assert value is None or isinstance(value, (str, int)), value
