"""Locates a named archive: a folder, or a bucket with a local copy."""

import hashlib
import os
from pathlib import Path

import click

from leasehold.adapters.bucket import Bucket, is_bucket

CACHE = "LEASEHOLD_CACHE"  # the variable that names the folder for copies


def folder_at(named: str) -> Path:
    """Return the archive's folder for a server on one machine; a bucket is refused."""
    if is_bucket(named):
        raise click.ClickException(
            f"ledger.archive: {named} is a bucket, and only `leasehold controller` can use a "
            "bucket; name a folder"
        )
    return Path(named)


def archive_at(named: str) -> tuple[Path | None, Bucket | None]:
    """Return the folder to read and write, if an archive was named, and its bucket, if it is a
    copy.

    Raises `BucketTrouble`.
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
