"""Canonical JSON and the digest chain over it, which make the ledger verifiable by anybody.

Used wherever something is committed, exported or verified. The rules are in
`docs/ledger-format.md`; a change here makes all existing ledgers unreadable.
"""

import hashlib

import msgspec

Digest = str  # SHA-256 in lower-case hex

GENESIS: Digest = "0" * 64  # the digest before the first batch

# Sorts keys by UTF-8 bytes, i.e. by code points, and escapes only what JSON requires.
_encode = msgspec.json.Encoder(order="sorted").encode


def canonical(value: object) -> bytes:
    """Encode as JSON with sorted keys, no white space, unescaped UTF-8 and integers only."""
    _assert_exact(value)
    return _encode(value)


def next_digest(digest: Digest, canonical_bytes: bytes) -> Digest:
    """Return the digest after a batch, given the digest before it."""
    assert len(digest) == 64, digest
    return hashlib.sha256(digest.encode() + b"\n" + canonical_bytes).hexdigest()


def digest_of(value: object) -> Digest:
    """Return the SHA-256 of a value's canonical JSON, e.g. of a Resolution's spec."""
    return hashlib.sha256(canonical(value)).hexdigest()


def _assert_exact(value: object) -> None:
    """Assert that a value contains no floats: languages print the same float differently."""
    if isinstance(value, dict):
        for key, member in value.items():
            assert type(key) is str, key
            _assert_exact(member)
    elif isinstance(value, (list, tuple)):
        for member in value:
            _assert_exact(member)
    else:
        assert value is None or isinstance(value, (str, int)), value
