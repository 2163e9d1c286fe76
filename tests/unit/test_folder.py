"""The data folder: only its owner may enter, and its key is made once."""

import os
from pathlib import Path

import pytest

from leasehold.shell.config.folder import KEY_BYTES, BadFolder, DataFolder


def test_data_folder_is_made_for_its_owner_only(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path / "deep" / "data")
    folder.prepare()
    assert folder.root.stat().st_mode & 0o777 == 0o700
    folder.prepare()
    assert folder.work == tmp_path / "deep" / "data.work"


def test_data_folder_that_others_may_enter_is_refused_with_remedy(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    tmp_path.chmod(0o755)
    with pytest.raises(BadFolder, match=f"chmod 700 {tmp_path}"):
        folder.prepare()


def test_data_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadFolder, match="--data"):
        DataFolder(tmp_path / "file" / "data").prepare()


def test_lottery_key_is_made_once_per_data_folder(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path / "data")
    folder.prepare()
    key = folder.key()
    assert len(key) == KEY_BYTES
    assert folder.key() == key
    assert folder.lottery_key.stat().st_mode & 0o777 == 0o600
    other = DataFolder(tmp_path / "other")
    other.prepare()
    assert other.key() != key


def test_truncated_lottery_key_is_refused(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path / "data")
    folder.prepare()
    folder.lottery_key.write_bytes(os.urandom(5))
    with pytest.raises(BadFolder, match="restore the file from a backup"):
        folder.key()
