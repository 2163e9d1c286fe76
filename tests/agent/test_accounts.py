"""Accounts that namespaces are mapped to: their groups, and whose the files are afterwards."""

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
    """The folder of a namespace `team`, where nobody needs to be root for it."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    (ground / "work" / "team").mkdir(parents=True)
    return ground / "work" / "team"


def mapped(team: Path) -> Users:
    return Users(team.parents[1], work=team.parent, configured={"team": "daemon"})


def test_a_named_user_has_its_groups_and_a_private_uid_none(
    team: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = {("daemon", DAEMON.pw_gid): [DAEMON.pw_gid, 27, 100]}
    monkeypatch.setattr(os, "getgrouplist", lambda *who: groups[who])
    users = mapped(team)

    assert users.account("team").groups == (DAEMON.pw_gid, 27, 100)
    assert users.account("other").groups == ()


def test_a_job_is_in_the_groups_of_its_user_and_in_no_others(
    ground: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A private uid's are those of `test_users`."""

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


def test_whoever_is_not_root_keeps_the_groups_it_has(
    ground: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: DAEMON.pw_uid)

    account = Users(ground).account("team")

    assert (account.uid, account.groups) == (None, ())


def test_a_folder_of_another_uid_is_told_with_what_to_do(team: Path) -> None:
    (words,) = mapped(team).estranged()

    assert words == (
        f"{team} has files of uid {ME}, but jobs of team now run as uid {DAEMON.pw_uid} (daemon); "
        f"to transfer the files, run: chown -R --from={ME} {DAEMON.pw_uid}:{DAEMON.pw_gid} {team}"
    )
    assert team.stat().st_uid == ME


def test_old_files_are_told_also_when_the_folder_was_given_over(
    team: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the first job after the change has it."""
    given = os.stat_result((*team.stat()[:4], DAEMON.pw_uid, *team.stat()[5:10]))
    lstat = Path.lstat
    monkeypatch.setattr(Path, "lstat", lambda path: given if path == team else lstat(path))
    monkeypatch.setattr(users_module, "_remembered", lambda _: {"team": ME})
    (team.parents[1] / "users.json").touch()

    assert mapped(team).estranged() == []
    (team / "old").touch()
    (words,) = mapped(team).estranged()
    assert f"chown -R --from={ME} {DAEMON.pw_uid}:{DAEMON.pw_gid} {team}" in words


def test_nothing_is_told_of_a_folder_that_is_not_there_or_is_its_users(
    team: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(users_module, "_remembered", lambda _: {"team": ME, "new": ME + 1})
    (team.parents[1] / "users.json").touch()
    (team / "own").touch()

    assert Users(team.parents[1], work=team.parent).estranged() == []


def test_where_all_are_one_user_nothing_is_anothers(
    team: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (team.parents[1] / "users.json").write_text(f'{{"team": {ME + 1}}}')
    assert len(Users(team.parents[1], work=team.parent).estranged()) == 1
    monkeypatch.setattr(os, "geteuid", lambda: DAEMON.pw_uid)

    assert Users(team.parents[1], work=team.parent).estranged() == []
