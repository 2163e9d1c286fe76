"""A folder that is synchronized with a bucket; here the bucket is a folder, too."""

import asyncio
from pathlib import Path

import pytest

from leasehold.adapters.bucket import Bucket, BucketTrouble, longest


def _segment(folder: Path, first: int, last: int, content: str = "x") -> None:
    folder.mkdir(exist_ok=True)
    for part, suffix in (("ledger", "jsonl"), ("leases", "jsonl"), ("resolutions", "jsonl"),
                         ("segment", "json")):  # fmt: skip
        name = f"{part}-{first:012d}-{last:012d}.{suffix}"
        (folder / name).write_text(f"{part} {content}", encoding="utf-8")


def _synced(place: Path, folder: Path) -> Bucket:
    place.mkdir(exist_ok=True)
    bucket = Bucket(f"file://{place}", folder)
    assert bucket.trouble
    asyncio.run(bucket.sync())
    assert bucket.trouble == ""
    return bucket


def _spans(folder: Path) -> list[str]:
    return sorted(path.name[8:33] for path in folder.glob("segment-*.json"))


def test_segments_of_one_folder_reach_another_after_a_sync(tmp_path: Path) -> None:
    place, one, other = tmp_path / "bucket", tmp_path / "one", tmp_path / "other"
    _segment(one, 1, 9)
    _segment(one, 10, 12)
    _synced(place, one)
    _synced(place, other)
    assert sorted(path.name for path in other.iterdir()) == sorted(
        path.name for path in one.iterdir()
    )
    _segment(other, 13, 20, "more")
    _synced(place, other)
    _synced(place, one)
    assert (one / "leases-000000000013-000000000020.jsonl").read_text("utf-8") == "leases more"


def test_of_overlapping_segments_those_that_reach_farthest_are_kept(tmp_path: Path) -> None:
    assert longest({(1, 9), (1, 5), (6, 20), (10, 12)}) == [(1, 5), (6, 20)]
    assert longest({(2, 3)}) == []
    assert longest({(1, 9), (1, 4), (5, 9)}) == [(1, 9)]
    # The bucket's segments replace the copy of a deposed writer.
    place, late, new = tmp_path / "bucket", tmp_path / "late", tmp_path / "new"
    _segment(new, 1, 9)
    _synced(place, new)
    _segment(late, 1, 7)
    _synced(place, late)
    assert _spans(late) == _spans(new) == ["000000000001-000000000009"]


def test_sync_refuses_a_bucket_file_with_other_content(tmp_path: Path) -> None:
    place, mine = tmp_path / "bucket", tmp_path / "mine"
    place.mkdir()
    _segment(mine, 1, 9)
    # Left by an interrupted upload of another program: no index lists it.
    (place / "leases-000000000001-000000000009.jsonl").write_text("other", encoding="utf-8")
    bucket = Bucket(f"file://{place}", mine)
    with pytest.raises(BucketTrouble, match="exists with other content"):
        asyncio.run(bucket.sync())
    assert "exists with other content" in bucket.trouble


def test_invalid_bucket_name_is_refused() -> None:
    with pytest.raises(BucketTrouble, match="is not the address of a bucket"):
        Bucket("gopher://lab/ledger", Path("copy"))
