"""`leasehold up` as root: jobs run as the user of their namespace, even after that changes."""

import os
import pwd
import re
import subprocess

from tests.up.conftest import Servers
from tests.up.server import QUICK, Up, job, team
from tests.up.test_start_and_stop import refused

DAEMON = pwd.getpwnam("daemon")
MAPPED = f"{QUICK}\nagent.users: {{team: daemon}}\n"


def advice(server: Up) -> list[str]:
    """Return the chown commands in the log since the last start."""
    log = (server.folder / "up.log").read_text()
    return re.findall(r"chown -R --from=\d+ \d+:\d+ [^\s\"]+", log)


def restart(server: Up, config: str) -> None:
    assert server.stop() == 0
    (server.folder / "config.yaml").write_text(config)
    (server.folder / "up.log").write_text("")
    server.start()


def test_remapped_namespace_gets_chown_advice_for_its_old_files(up: Servers) -> None:
    if os.geteuid() != 0:
        assert "which only root can do" in refused(up(config=MAPPED))
        return
    server = up().start()
    server.submit(*team(), job("writes", "umask 077; echo mine > kept"))
    server.wait_phase("writes", "Completed")
    home = server.work / "team"
    before = home.stat().st_uid
    assert advice(server) == []

    restart(server, MAPPED)
    command = f"chown -R --from={before} {DAEMON.pw_uid}:{DAEMON.pw_gid} {home}"
    assert advice(server) == [command]
    assert home.stat().st_uid == before
    server.submit(job("reads", "cat kept"))
    server.wait_phase("reads", "Failed")
    assert (home / "kept").stat().st_uid == before

    restart(server, MAPPED)
    assert advice(server) == [command]
    subprocess.run(command.split(), check=True)
    server.submit(job("again", "cat kept"))
    server.wait_phase("again", "Completed")
    restart(server, MAPPED)
    assert advice(server) == []
