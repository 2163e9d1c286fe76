"""Accounts that namespaces are mapped to: their groups, and files left with an old owner."""

import os
import pwd
import subprocess
from pathlib import Path

import pytest
from tests.agent.harness import Stage, stage

from leasehold.adapters.agent import users as users_module
from leasehold.adapters.agent.users import Users

DAEMON = pwd.getpwnam("daemon")
ME = os.getuid()


@pytest.fixture
def team(ground: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of namespace `team`; the process seems to run as root."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    (ground / "work" / "team").mkdir(parents=True)
    return ground / "work" / "team"


def mapped(team: Path) -> Users:
    return Users(team.parents[1], work=team.parent, configured={"team": "daemon"})


def test_account_of_mapped_user_has_its_groups_and_private_uid_has_none(
    team: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = {("daemon", DAEMON.pw_gid): [DAEMON.pw_gid, 27, 100]}
    monkeypatch.setattr(os, "getgrouplist", lambda *who: groups[who])
    users = mapped(team)

    assert users.account("team").groups == (DAEMON.pw_gid, 27, 100)
    assert users.account("other").groups == ()


def test_job_runs_with_groups_of_its_user_only(
    ground: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`test_users` checks the groups of a private uid."""

    async def play(machine: Stage) -> list[str]:
        await machine.submit("who", "id -u; id -G")
        return (await machine.log(await machine.ended("who"))).decode().split()

    if ME == 0:
        groups = [DAEMON.pw_gid, 4_001, 2_000_000_001]
        monkeypatch.setattr(os, "getgrouplist", lambda *_: groups)
        said = stage(ground, play, configured={"team": "daemon"})
        assert said == [str(DAEMON.pw_uid), *map(str, groups)]
    else:
        mine = subprocess.run(["id", "-G"], capture_output=True, text=True, check=True).stdout
        assert stage(ground, play) == [str(ME), *mine.split()]


def test_account_has_no_uid_and_no_groups_without_root(
    ground: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: DAEMON.pw_uid)

    account = Users(ground).account("team")

    assert (account.uid, account.groups) == (None, ())


def test_folder_of_another_uid_is_reported_with_chown_command(team: Path) -> None:
    (words,) = mapped(team).estranged()

    assert words == (
        f"{team} has files of uid {ME}, but jobs of team now run as uid {DAEMON.pw_uid} (daemon); "
        f"to transfer the files, run: chown -R --from={ME} {DAEMON.pw_uid}:{DAEMON.pw_gid} {team}"
    )
    assert team.stat().st_uid == ME


def test_old_files_in_folder_with_new_owner_are_reported(
    team: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first job after the change of user gives the folder to the new user."""
    given = os.stat_result((*team.stat()[:4], DAEMON.pw_uid, *team.stat()[5:10]))
    lstat = Path.lstat
    monkeypatch.setattr(Path, "lstat", lambda path: given if path == team else lstat(path))
    monkeypatch.setattr(users_module, "_remembered", lambda _: {"team": ME})
    (team.parents[1] / "users.json").touch()

    assert mapped(team).estranged() == []
    (team / "old").touch()
    (words,) = mapped(team).estranged()
    assert f"chown -R --from={ME} {DAEMON.pw_uid}:{DAEMON.pw_gid} {team}" in words


def test_missing_folder_and_correctly_owned_folder_are_not_reported(
    team: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(users_module, "_remembered", lambda _: {"team": ME, "new": ME + 1})
    (team.parents[1] / "users.json").touch()
    (team / "own").touch()

    assert Users(team.parents[1], work=team.parent).estranged() == []


def test_old_uid_in_users_file_is_not_reported_without_root(
    team: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (team.parents[1] / "users.json").write_text(f'{{"team": {ME + 1}}}')
    assert len(Users(team.parents[1], work=team.parent).estranged()) == 1
    monkeypatch.setattr(os, "geteuid", lambda: DAEMON.pw_uid)

    assert Users(team.parents[1], work=team.parent).estranged() == []
