"""Webhooks and commands get signed, retried messages about starts, preemptions and ends."""

import hashlib
import hmac
import json
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.up.conftest import Servers
from tests.up.server import QUICK, Up, job, team

SECRET = b"0123456789abcdef0123456789abcdef"


class Receiver:
    """A real HTTP server that keeps the messages it gets; it can refuse some at first."""

    def __init__(self) -> None:
        self.got: list[tuple[dict[str, str], dict[str, object]]] = []
        self.refusals: list[int] = []  # statuses of the first answers
        self.tries = 0
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.tries += 1
                status = receiver.refusals.pop(0) if receiver.refusals else 204
                if status == 204:
                    headers = {key.lower(): value for key, value in self.headers.items()}
                    receiver.check(headers, body)
                    receiver.got.append((headers, json.loads(body)))
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}
        )
        self._thread.start()
        self.wrong: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/hook?team=a"

    def check(self, headers: dict[str, str], body: bytes) -> None:
        """Check the signature and the timestamp, as a receiver should."""
        signed = headers["x-leasehold-timestamp"].encode() + b"." + body
        good = "sha256=" + hmac.new(SECRET, signed, hashlib.sha256).hexdigest()
        if not hmac.compare_digest(good, headers["x-leasehold-signature"]):
            self.wrong.append("the signature is wrong")
        if abs(time.time() - int(headers["x-leasehold-timestamp"])) > 300:
            self.wrong.append("it is old")

    def events(self) -> list[tuple[str, str]]:
        return [(str(wire["event"]), str(wire["run"])) for _, wire in self.got]

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    found = Receiver()
    yield found
    found.close()


def server_with(up: Servers, lines: str, tmp_path: Path, *words: str) -> Up:
    secret = tmp_path / "secret"
    secret.write_bytes(SECRET + b"\n")
    config = f"{QUICK}\nnotify.secretFile: {secret}\n{lines}\n"
    return up(*(words or ("--gpus", "8")), config=config).start()


def test_webhook_gets_signed_start_and_end_exactly_once(
    up: Servers, receiver: Receiver, tmp_path: Path
) -> None:
    server = server_with(up, f"notify.webhooks: {{team: '{receiver.url}'}}", tmp_path)
    server.submit(*team(), job("good", "true"), job("bad", "exit 3"))
    for name in ("good", "bad"):
        server.wait_phase(name, "Completed", "Failed")
    server.wait("four messages", lambda: len(receiver.got) >= 4)

    assert sorted(receiver.events()) == [
        ("end", "bad"), ("end", "good"), ("start", "bad"), ("start", "good"),
    ]  # fmt: skip
    assert receiver.wrong == []
    ends = {wire["run"]: wire for headers, wire in receiver.got if wire["event"] == "end"}
    assert ends["bad"]["phase"] == "Failed"
    assert ends["bad"]["reason"] == "WorkloadFailed"
    assert ends["good"]["phase"] == "Completed"
    assert ends["good"]["owner"] == "org:team"
    deliveries = [headers["x-leasehold-delivery"] for headers, _ in receiver.got]
    assert len(set(deliveries)) == 4
    assert [wire["delivery"] for _, wire in receiver.got] == deliveries

    server.kill()
    server.start()
    server.submit(job("later", "true"))
    server.wait_phase("later", "Completed")
    server.wait("two more", lambda: len(receiver.got) >= 6)
    assert sorted(receiver.events()[4:]) == [("end", "later"), ("start", "later")]


def test_preemption_message_names_beneficiary(
    up: Servers, receiver: Receiver, tmp_path: Path
) -> None:
    lines = f"notify.webhooks: {{'*': '{receiver.url}'}}\nnotify.events: [cut]"
    server = server_with(up, lines, tmp_path, "--gpus", "2")
    server.submit(*team(), job("first", "sleep 600", gpus=2))
    server.wait_phase("first", "Running")
    space, budget = json.loads(json.dumps(team()))
    space["metadata"]["name"] = budget["metadata"]["namespace"] = "other"
    budget["spec"]["owner"] = "lab:other"
    second = job("second", "sleep 600", gpus=2)
    second["metadata"]["namespace"] = "other"  # type: ignore[index]
    second["spec"]["owner"] = "lab:other"  # type: ignore[index]
    server.submit(space, budget, second)
    server.wait("a cut", lambda: bool(receiver.got))

    [(_, wire)] = receiver.got
    assert (wire["event"], wire["namespace"], wire["run"]) == ("cut", "team", "first")
    cut = wire["cut"]
    assert isinstance(cut, dict)
    assert cut["gpus"] == 2
    assert cut["beneficiary"] == "other/second"
    assert cut["resolution"]


def test_webhook_with_temporary_error_is_retried(
    up: Servers, receiver: Receiver, tmp_path: Path
) -> None:
    receiver.refusals = [503, 429]
    server = server_with(up, f"notify.webhooks: {{team: '{receiver.url}'}}", tmp_path)
    server.submit(*team(), job("one", "true"))
    server.wait("both messages", lambda: len(receiver.got) == 2)

    assert receiver.events() == [("start", "one"), ("end", "one")]
    assert receiver.tries == 4


def test_webhook_with_permanent_error_is_not_retried(
    up: Servers, receiver: Receiver, tmp_path: Path
) -> None:
    receiver.refusals = [410]
    server = server_with(up, f"notify.webhooks: {{team: '{receiver.url}'}}", tmp_path)
    server.submit(*team(), job("one", "true"))
    server.wait("the second message", lambda: len(receiver.got) == 1)

    assert receiver.events() == [("end", "one")]
    assert receiver.tries == 2


def test_hanging_webhook_does_not_delay_runs_or_stop(up: Servers, tmp_path: Path) -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()  # accepts connections and never answers
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}/"
        server = server_with(up, f"notify.webhooks: {{team: '{url}'}}", tmp_path)
        server.submit(*team())
        began = time.monotonic()
        for index in range(5):
            server.submit(job(f"r{index}", "true"))
            server.wait_phase(f"r{index}", "Completed")

        assert time.monotonic() - began < 60  # ten messages, each tried six times for ten seconds
        assert server.stop() == 0


def test_notification_command_gets_message_on_standard_input(up: Servers, tmp_path: Path) -> None:
    said = tmp_path / "said"
    script = tmp_path / "tell"
    script.write_text(f"#!/bin/sh\n(printf '%s ' \"$LEASEHOLD_EVENT\"; cat; echo) >> {said}\n")
    script.chmod(0o755)
    server = server_with(up, f"notify.commands: {{team: [{script}, x]}}", tmp_path)
    server.submit(*team(), job("one", "true"))
    server.wait("two lines", lambda: said.exists() and len(said.read_text().splitlines()) == 2)

    first, second = said.read_text().splitlines()
    assert first.startswith("start {")
    assert second.startswith("end {")
    assert json.loads(second.partition(" ")[2])["run"] == "one"


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ("notify.webhooks: {team: 'https://example.com'}", "notify.secretFile"),
        ("notify.webhooks: {team: 'ftp://example.com'}", "https://"),
        ("notify.webhooks: https://example.com", "use a mapping of namespaces to URLs"),
        ("notify.commands: {team: tell}", "path of a program"),
        ("notify.commands: {team: [tell]}", "path of a program"),
        ("notify.events: [start, stop]", "start, cut, end"),
        ("notify.secretFile: /nowhere/at/all", "No such file"),
    ],
)
def test_invalid_notification_settings_are_refused_at_start(
    up: Servers, lines: str, says: str
) -> None:
    server = up("--gpus", "1", config=lines)
    done = subprocess.run(server.command(), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert says in done.stderr
    assert "Traceback" not in done.stderr
