"""An archive in a bucket: a folder here that is kept in step with it.

What reads and writes the archive (`shell.archive`) works on the folder. `sync` puts into the bucket
what the folder has more, and into the folder what the bucket has more; a segment counts as
archived when a sync has ended after it was written. Files never change once they are written, an
index comes after the files that it names, and nothing is ever replaced or removed in the bucket.

Two writers, one of them deposed and late, may leave segments that overlap. Both tell the truth,
since both tell committed batches; of such segments those count that together reach farthest. The
folder is a copy: what does not fit the bucket goes from it.

Needs `obstore`, which `leasehold[bucket]` brings.
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

Span = tuple[int, int]  # the first and the last batch of a segment


class BucketTrouble(OSError):  # noqa: N818 - it says what there is
    """What the bucket said, and its name; nothing was lost."""


def is_bucket(named: str) -> bool:
    return "://" in named


class Bucket:
    """`trouble` is empty while the folder is known to have all that the bucket had."""

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
                # The index first: without it the others are nothing.
                for name in reversed(_names(span)):
                    (self.folder / name).unlink(missing_ok=True)
        for span in chain:
            await self._pull(span)

    async def _push(self, chain: list[Span]) -> list[Span]:
        """What the folder has of batches that follow those in the bucket."""
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
                    pass  # of a try that was cut off; it is the same, as is seen next
                except Exception as error:
                    raise self._failed(error) from error
                if await self._get(name) != content:
                    raise BucketTrouble(f"{self.url}: {name} is there with another content")
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
    """Of segments that may overlap, those that follow one another from `start` on and reach
    farthest; of two ways there, the one with fewer segments."""
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
    """Credentials, region and endpoint come from the environment, as every client of S3 has them
    (AWS_ACCESS_KEY_ID and the like), or from the machine's own role."""
    try:
        from obstore.store import from_url
    except ImportError:
        raise BucketTrouble(f"{url}: a bucket needs the package obstore: pip install"
                            " 'leasehold[bucket]'") from None  # fmt: skip
    # Without TLS only where somebody has named such an endpoint.
    is_plain = os.environ.get("AWS_ENDPOINT_URL", "").startswith("http://")
    try:
        return from_url(
            url,
            client_options={"timeout": TIMEOUT, "allow_http": is_plain},
            retry_config={"max_retries": TRIES},
        )
    except Exception as error:
        raise BucketTrouble(f"{url} names no bucket: {error}") from None
