"""Finds the archive that the configuration names: a folder, or a bucket with a local copy."""

import hashlib
import os
from pathlib import Path

import click

from leasehold.adapters.bucket import Bucket, is_bucket

CACHE = "LEASEHOLD_CACHE"  # the variable that names the folder for copies


def folder_at(named: str) -> Path:
    """Return the folder of an archive for a server on one machine. A bucket is refused with an
    error."""
    if is_bucket(named):
        raise click.ClickException(
            f"ledger.archive: {named} is a bucket, and only `leasehold controller` can use a "
            "bucket; name a folder"
        )
    return Path(named)


def archive_at(named: str) -> tuple[Path | None, Bucket | None]:
    """Return the folder through which an archive is read and written, and its bucket.

    `named` is a folder, a bucket, or "" for no archive. For a folder, the bucket is None. For a
    bucket, the folder is a local copy of it. Both are None without an archive. Raises
    `BucketTrouble`.
    """
    if not named:
        return None, None
    if not is_bucket(named):
        return Path(named), None
    cache = os.environ.get(CACHE) or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    # A hash, so that two archives never share a copy.
    digest = hashlib.sha256(named.encode()).hexdigest()[:16]
    folder = Path(cache) / "leasehold" / "archive" / digest
    return folder, Bucket(named, folder)
