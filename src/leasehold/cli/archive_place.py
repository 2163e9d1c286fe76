"""Where an archive is that somebody named: a folder, or a bucket with a copy of it here."""

import hashlib
import os
from pathlib import Path

import click

from leasehold.adapters.bucket import Bucket, is_bucket

CACHE = "LEASEHOLD_CACHE"  # the variable that names the folder for copies


def folder_at(named: str) -> Path:
    """Of a server on one machine, whose archive lies beside it."""
    if is_bucket(named):
        raise click.ClickException(
            f"ledger.archive: {named} is a bucket, and for `leasehold controller`; name a folder"
        )
    return Path(named)


def archive_at(named: str) -> tuple[Path | None, Bucket | None]:
    """The folder to read and write, if any was named, and what it is a copy of; raises
    `BucketTrouble`."""
    if not named:
        return None, None
    if not is_bucket(named):
        return Path(named), None
    cache = os.environ.get(CACHE) or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    # Two archives share no copy, whatever their last folder is called.
    digest = hashlib.sha256(named.encode()).hexdigest()[:16]
    folder = Path(cache) / "leasehold" / "archive" / digest
    return folder, Bucket(named, folder)
