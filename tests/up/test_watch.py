"""`kubectl runs watch` outlives the server: it waits for the next server, on any port."""

import os
import subprocess

from tests.up.conftest import Servers
from tests.up.server import BIN, job, team


def test_watch_continues_with_next_server_until_run_ends(up: Servers) -> None:
    server = up().start()
    server.submit(*team(), job("long", "while [ ! -e go ]; do sleep 0.1; done"))
    server.wait_phase("long", "Running")
    words = [str(BIN / "kubectl-runs"), "watch", "team/long", "--interval", "0.1"]
    env = {**os.environ, "KUBECONFIG": str(server.kubeconfig)}
    with subprocess.Popen(
        words, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as watching:
        try:
            assert watching.stdout is not None
            assert "Running" in watching.stdout.readline()
            assert server.stop() == 0
            assert watching.stderr is not None
            assert "trying again" in watching.stderr.readline()
            server.start()  # on another port
            assert "answers again" in watching.stderr.readline()
            (server.work / "team" / "go").touch()
            told, said = watching.communicate(timeout=30)
        finally:
            watching.kill()
    assert "Completed" in told
    assert said == ""
    assert watching.returncode == 0


def test_watch_fails_at_once_if_server_is_down_from_the_start(up: Servers) -> None:
    server = up().start()
    server.submit(*team())
    assert server.stop() == 0
    done = server.runs("watch", ok=False)
    assert done.returncode == 1
    assert "connection refused" in done.stderr
