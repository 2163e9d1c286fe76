"""The archive in a bucket: a local folder that is kept in sync with it.

Readers and writers of the archive (`shell.archive`) use the folder. `sync` copies missing files in
both directions; a segment counts as archived once a sync that began after its write has finished.
Files never change, an index is written after the files it names, and nothing in the bucket is ever
replaced or removed.

Two writers, one of them a deposed leader, may leave overlapping segments. Both contain only
committed batches. The sequence of segments that reaches farthest counts. The bucket decides, and
the folder is a copy: a file of the folder that contradicts the bucket is removed from the folder.

Needs `obstore`, which `leasehold[bucket]` installs.
"""

import asyncio
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from leasehold.adapters.private_file import write_private

if TYPE_CHECKING:
    from obstore.store import ObjectStore

TIMEOUT = "30s"
TRIES = 3
SAID_MAX = 300
_SEGMENT = re.compile(r"segment-(\d{12})-(\d{12})\.json")
_PARTS = ("ledger-{}.jsonl", "leases-{}.jsonl", "resolutions-{}.jsonl", "segment-{}.json")

Span = tuple[int, int]  # first and last batch of a segment


class BucketTrouble(OSError):  # noqa: N818 - named for the condition
    """An error of the bucket; the message contains the bucket's URL. No data was lost."""


def is_bucket(named: str) -> bool:
    return "://" in named


class Bucket:
    """An archive folder synced with a bucket. `trouble` is "" if the last sync succeeded, otherwise
    the reason why the folder may lack files."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder
        self.trouble = f"{url} was not read yet"
        self._store = _store(url)
        self._lock = asyncio.Lock()

    async def sync(self) -> None:
        async with self._lock:
            try:
                await self._sync()
            except BucketTrouble as error:
                self.trouble = str(error)
                raise
            self.trouble = ""

    async def _sync(self) -> None:
        import obstore

        try:
            listed = await obstore.list(self._store).collect_async()
        except Exception as error:
            raise self._failed(error) from error
        chain = longest(_spans(str(each["path"]) for each in listed))
        chain += await self._push(chain)
        for span in _spans(path.name for path in self.folder.glob("segment-*.json")):
            if span not in chain:
                # The index first: without it the other files do not count.
                for name in reversed(_names(span)):
                    (self.folder / name).unlink(missing_ok=True)
        for span in chain:
            await self._pull(span)

    async def _push(self, chain: list[Span]) -> list[Span]:
        """Upload the folder's segments that follow the last one of `chain`, the bucket's sequence
        of segments. Return the segments that were uploaded."""
        import obstore

        end = chain[-1][1] if chain else 0
        mine = _spans(path.name for path in self.folder.glob("segment-*.json"))
        more = longest({span for span in mine if span[0] > end}, start=end + 1)
        for span in more:
            for name in _names(span):
                content = (self.folder / name).read_bytes()
                try:
                    await obstore.put_async(self._store, name, content, mode="create")
                except obstore.exceptions.AlreadyExistsError:
                    pass  # left by an interrupted attempt; compared below
                except Exception as error:
                    raise self._failed(error) from error
                if await self._get(name) != content:
                    raise BucketTrouble(f"{self.url}: {name} exists with other content")
        return more

    async def _pull(self, span: Span) -> None:
        for name in _names(span):
            if not (self.folder / name).exists():
                write_private(self.folder / name, await self._get(name))

    async def _get(self, name: str) -> bytes:
        import obstore

        try:
            answer = await obstore.get_async(self._store, name)
            return bytes(await answer.bytes_async())
        except Exception as error:
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> BucketTrouble:
        said = " ".join(str(error).partition("Debug source:")[0].split())[:SAID_MAX]
        return BucketTrouble(f"{self.url}: {said}")


def longest(spans: Iterable[Span], start: int = 1) -> list[Span]:
    """Return the sequence of segments that begins at batch `start` and reaches farthest. Each
    segment follows the one before. Of two sequences that reach equally far, return the one with
    fewer segments."""
    by_first: dict[int, list[Span]] = {}
    for span in spans:
        by_first.setdefault(span[0], []).append(span)
    best: dict[int, list[Span]] = {}
    for first in sorted(by_first, reverse=True):
        ways = [[span, *best.get(span[1] + 1, [])] for span in by_first[first]]
        best[first] = max(ways, key=lambda way: (way[-1][1], -len(way)))
    return best.get(start, [])


def _spans(names: Iterable[str]) -> set[Span]:
    found = (_SEGMENT.fullmatch(name) for name in names)
    return {(int(each[1]), int(each[2])) for each in found if each is not None}


def _names(span: Span) -> list[str]:
    numbers = f"{span[0]:012d}-{span[1]:012d}"
    return [name.format(numbers) for name in _PARTS]


def _store(url: str) -> "ObjectStore":
    """Open the bucket. Credentials, region and endpoint come from the usual S3 environment
    variables (AWS_ACCESS_KEY_ID and others) or from the machine's role."""
    try:
        from obstore.store import from_url
    except ImportError:
        raise BucketTrouble(f"{url}: a bucket needs the package obstore: pip install"
                            " 'leasehold[bucket]'") from None  # fmt: skip
    # Plain HTTP only if such an endpoint was configured.
    is_plain = os.environ.get("AWS_ENDPOINT_URL", "").startswith("http://")
    try:
        return from_url(
            url,
            client_options={"timeout": TIMEOUT, "allow_http": is_plain},
            retry_config={"max_retries": TRIES},
        )
    except Exception as error:
        raise BucketTrouble(f"{url} is not the address of a bucket: {error}") from None
