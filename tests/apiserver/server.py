"""A real kube-apiserver with our CustomResourceDefinitions, one for all workers of a test session.

The first worker starts the server and the last one stops it: every worker holds a shared lock on a
file, which a crash releases too. Nothing of the server is left in the temporary folder.
"""

import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from tests.apiserver.client import Client
from tests.apiserver.front_proxy import make_front_proxy
from tests.deadlines import off_the_clock

from leasehold.adapters.api.crds import definitions
from leasehold.adapters.http.tls import ensure_certificates
from leasehold.core.names import GROUP

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 60
STOP_S = 20
BUILD_S = 2400  # from empty caches, on a busy machine
NAMESPACES = ("vision", "audio")  # besides `default`, which always exists
USERS = {  # name -> groups; the name is the token, on a server that only this session can reach
    "system": "system:masters",
    "ann": "people",
    "vic": "people",
    "olga": "people",
    "bob": "people",
}


@dataclass(frozen=True)
class Running:
    """What another worker needs to use the server and to stop it."""

    pids: list[int]
    ports: list[int]
    ca: str
    started: list[tuple[str, list[str]]]  # log and command line: of etcd, then of the server


@contextmanager
def shared_server(folder: Path) -> Iterator[Client]:
    """Yield a client of the session's server; the last worker that leaves stops the server."""
    folder.mkdir(exist_ok=True)
    note = folder / "running.json"
    with (folder / "users").open("w") as users:
        with _locked(folder):
            if not note.exists():
                note.write_text(json.dumps(asdict(start(folder / "state"))), encoding="utf-8")
            running = Running(**json.loads(note.read_text(encoding="utf-8")))
            fcntl.flock(users, fcntl.LOCK_SH)
        client = Client(running.ports[-1], running.ca, {name: name for name in USERS})
        try:
            yield client
        finally:
            client.close()
            with _locked(folder):
                fcntl.flock(users, fcntl.LOCK_UN)
                if _is_last(users.fileno()):
                    stop(running)
                    shutil.rmtree(folder / "state")
                    note.unlink()


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _is_last(users: int) -> bool:
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def start(state: Path, *options: str, accounts: bool = False) -> Running:
    """Start a server with our definitions; the caller must call `stop`.

    With `accounts`, pods need a ServiceAccount, which a controller-manager creates in every
    namespace.
    """
    etcd, apiserver = (program(name) for name in ("etcd", "kube-apiserver"))
    shutil.rmtree(state, ignore_errors=True)  # of a session that was killed
    state.mkdir()
    certificates = ensure_certificates(state / "tls", [])
    etcd_port, peer_port, port = _free_ports(3)
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    (state / "sa.key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )
    rows = [f'{name},{name},{name},"{groups}"' for name, groups in USERS.items()]
    (state / "tokens.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    pids: list[int] = []
    running = Running(pids, [etcd_port, port], certificates.ca_pem.decode(), [])
    try:
        running.started.append((str(state / "etcd.log"), [
            etcd, f"--data-dir={state / 'etcd'}", "--unsafe-no-fsync", "--log-level=error",
            f"--listen-client-urls=http://127.0.0.1:{etcd_port}",
            f"--advertise-client-urls=http://127.0.0.1:{etcd_port}",
            f"--listen-peer-urls=http://127.0.0.1:{peer_port}",
        ]))  # fmt: skip
        running.started.append((str(state / "apiserver.log"), [
            apiserver, f"--etcd-servers=http://127.0.0.1:{etcd_port}",
            f"--secure-port={port}", "--bind-address=127.0.0.1", f"--cert-dir={state}",
            f"--tls-cert-file={certificates.cert_path}",
            f"--tls-private-key-file={certificates.key_path}",
            f"--token-auth-file={state / 'tokens.csv'}", "--authorization-mode=RBAC",
            *(() if accounts else ("--disable-admission-plugins=ServiceAccount",)),
            "--service-account-issuer=https://test",
            f"--service-account-key-file={state / 'sa.key'}",
            f"--service-account-signing-key-file={state / 'sa.key'}",
            "--service-cluster-ip-range=10.0.0.0/24", "--anonymous-auth=false",
            *make_front_proxy(state / "front-proxy"), *options,
        ]))  # fmt: skip
        pids += [_launch(Path(log), words) for log, words in running.started]
        _prepare(running, state / "apiserver.log")
    except BaseException:
        stop(running)
        raise
    return running


def restart(running: Running, index: int) -> None:
    """Kill one of the two programs and start it again; return when the server is ready."""
    os.kill(running.pids[index], signal.SIGKILL)
    assert _is_gone_soon(running.pids[index])
    log, words = running.started[index]
    running.pids[index] = _launch(Path(log), words)
    client = Client(running.ports[-1], running.ca, {name: name for name in USERS})

    def is_back() -> bool:
        # A connection attempt to the free port may take that very port as its own local port.
        if not Path(f"/proc/{running.pids[index]}").exists():
            running.pids[index] = _launch(Path(log), words)
        return _is_ready(client)

    try:
        _until(is_back, Path(running.started[-1][0]))
    finally:
        client.close()


def program(name: str) -> str:
    """Return a program's path; it is built once from Go modules, which takes minutes."""
    with off_the_clock():
        built = subprocess.run(
            [str(ROOT / "tools" / "kube" / "build"), name],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
            timeout=BUILD_S,
        )
    return built.stdout.strip()


def _launch(log: Path, words: list[str]) -> int:
    """Start a program detached: the worker that starts it need not be the one that stops it."""
    started = subprocess.run(
        ["/bin/sh", "-c", 'log=$1; shift; "$@" >"$log" 2>&1 </dev/null & echo $!', "sh", str(log),
         *words],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )  # fmt: skip
    return int(started.stdout)


def _free_ports(count: int) -> list[int]:
    """Return free ports; all are bound at the same time, so that they differ."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def _prepare(running: Running, log: Path) -> None:
    client = Client(running.ports[-1], running.ca, {name: name for name in USERS})
    try:
        _until(lambda: _is_ready(client), log)
        for definition in definitions():
            made = client.ask("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
                              definition)  # fmt: skip
            assert made.status == 201, made.body.decode()
        for name in NAMESPACES:
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            client.ask("POST", "/api/v1/namespaces", namespace)
        for document in _rights():
            made = client.ask("POST", f"/apis/{document['apiVersion']}/{_plural(document)}",
                              document)  # fmt: skip
            assert made.status == 201, made.body.decode()
        for definition in definitions():
            plural = definition["spec"]["names"]["plural"]  # type: ignore[index]
            place = f"/apis/{GROUP}/v1/{plural}"
            _until(partial(_is_served, client, place), log)
        _until(lambda: client.ask("GET", f"/apis/{GROUP}/v1/leases", who="vic").status == 200, log)
    finally:
        client.close()


def _is_ready(client: Client) -> bool:
    try:
        return client.ask("GET", "/readyz").status == 200
    except OSError:
        return False


def _rights() -> list[dict[str, object]]:
    """Return, as RBAC objects, the rights that the facade's tokens give `ann` and `vic`."""
    everything = {"apiGroups": [GROUP], "resources": ["runs", "budgets"], "verbs": ["*"]}
    to_read = {
        "apiGroups": [GROUP, ""],
        "resources": ["leases", "resolutions", "reservations", "nodes", "namespaces"],
        "verbs": ["get", "list", "watch"],
    }
    api = "rbac.authorization.k8s.io"
    documents: list[dict[str, object]] = []
    for kind, name, rule, who in (
        ("Role", "owner", everything, "ann"), ("ClusterRole", "reader", to_read, "ann"),
        ("ClusterRole", "looker", to_read, "vic"),
    ):  # fmt: skip
        place = {"namespace": "vision"} if kind == "Role" else {}
        head = {"apiVersion": f"{api}/v1", "metadata": {"name": name, **place}}
        user = {"apiGroup": api, "kind": "User", "name": who}
        documents.append({**head, "kind": kind, "rules": [rule]})
        documents.append({
            **head, "kind": f"{kind}Binding", "subjects": [user],
            "roleRef": {"apiGroup": api, "kind": kind, "name": name},
        })  # fmt: skip
    return documents


def _plural(document: dict[str, object]) -> str:
    plural = f"{str(document['kind']).lower()}s"
    return plural if plural.startswith("cluster") else f"namespaces/vision/{plural}"


def _is_served(client: Client, place: str) -> bool:
    return client.ask("GET", place).status == 200


def _until(holds: Callable[[], bool], log: Path) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        tail = log.read_text(encoding="utf-8", errors="replace")[-2000:] if log.exists() else ""
        assert time.monotonic() < deadline, f"the server does not come up: {tail}"
        time.sleep(0.1)


def stop(running: Running) -> None:
    """Stop the server before etcd; it would complain about a missing etcd."""
    for pid in reversed(running.pids):
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.kill(pid, number)
            if _is_gone_soon(pid):
                break


def _is_gone_soon(pid: int) -> bool:
    deadline = time.monotonic() + STOP_S
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state.split()[0] == "Z":  # ended, but not reaped by its new parent
            return True
        time.sleep(0.05)
    return False
