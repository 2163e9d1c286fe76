"""Tokens, certificates, kubeconfigs and the port: what admits callers and keeps others out."""

import asyncio
import socket
import ssl
import stat
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from tests.rest.facade import ADMIN, ANN, Facade

from leasehold.adapters.http import tls
from leasehold.adapters.http.serve import PortInUse, serve
from leasehold.adapters.http.tls import BadCertificates, ensure_certificates
from leasehold.adapters.http.tokens import BadTokenFile, Tokens
from leasehold.adapters.kubeconfig.write import read_back, write_kubeconfig
from leasehold.core.objects.access import Caller


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def until(holds: Callable[[], bool]) -> None:
    due = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < due
        time.sleep(0.01)


def test_token_is_not_stored_in_clear_and_works_until_revoked(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "tokens.json"
    tokens = Tokens(path)
    token = tokens.create(ANN)

    assert mode(path) == 0o600
    assert token not in path.read_text()
    assert tokens.caller_of(token) == ANN
    assert Tokens(path).caller_of(token) == ANN
    assert tokens.caller_of(token + "x") is None
    assert tokens.caller_of("") is None
    assert tokens.caller_of("x" * 100_000) is None
    assert [record.caller for record in tokens.list()] == [ANN]
    assert tokens.revoke("nobody") == 0
    assert tokens.revoke("ann") == 1
    assert tokens.caller_of(token) is None


def test_tokens_changed_by_another_process_are_reloaded(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    server, command = Tokens(path), Tokens(path)
    token = command.create(ANN)
    assert server.caller_of(token) == ANN
    command.revoke("ann")
    until(lambda: server.caller_of(token) is None)
    path.unlink()
    assert server.caller_of(command.create(ADMIN)) == ADMIN


def test_tokens_created_concurrently_are_all_kept(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"

    def make(number: int) -> str:
        return Tokens(path).create(Caller(user=f"u{number}"))

    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(make, range(40)))
    tokens = Tokens(path)
    known = [tokens.caller_of(each) for each in made]
    assert [each.user if each else "" for each in known] == [f"u{n}" for n in range(40)]


def test_token_expires(tmp_path: Path) -> None:
    now = 1000
    tokens = Tokens(tmp_path / "tokens.json", now=lambda: now)
    token = tokens.create(ANN, expires=2000)
    assert tokens.caller_of(token) == ANN
    now = 2000
    assert tokens.caller_of(token) is None


def test_damaged_token_file_rejects_all_tokens(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    tokens = Tokens(path)
    token = tokens.create(ANN)
    good = path.read_bytes()
    path.write_bytes(good[:-20])
    until(lambda: tokens.caller_of(token) is None)
    with pytest.raises(BadTokenFile, match="restore it"):
        Tokens(path)
    path.write_bytes(good + b" ")
    assert tokens.caller_of(token) == ANN


def test_certificates_are_created_once_and_kept(tmp_path: Path) -> None:
    first = ensure_certificates(tmp_path / "tls", ["gpu.example"])
    for name in ("ca.key", "server.key"):
        assert mode(tmp_path / "tls" / name) == 0o600
    leaf = first.cert_path.read_bytes()
    again = ensure_certificates(tmp_path / "tls", ["gpu.example"])
    assert (again.ca_pem, again.cert_path.read_bytes()) == (first.ca_pem, leaf)
    names = x509.load_pem_x509_certificate(leaf).extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    assert set(names.value.get_values_for_type(x509.DNSName)) == {"localhost", "gpu.example"}
    served = {str(each) for each in names.value.get_values_for_type(x509.IPAddress)}
    assert served == {"127.0.0.1", "::1"}

    other = ensure_certificates(tmp_path / "tls", ["other.example"])
    assert other.ca_pem == first.ca_pem
    assert other.cert_path.read_bytes() != leaf


def test_server_certificate_near_expiry_is_renewed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls, "LEAF_LIFE", tls.RENEW_BEFORE)
    leaf = ensure_certificates(tmp_path, []).cert_path.read_bytes()
    assert ensure_certificates(tmp_path, []).cert_path.read_bytes() != leaf


def test_damaged_certificate_is_reported_by_name(tmp_path: Path) -> None:
    ensure_certificates(tmp_path, [])
    (tmp_path / "ca.crt").write_text("nonsense")
    with pytest.raises(BadCertificates, match=r"ca\.crt is not a certificate"):
        ensure_certificates(tmp_path, [])


def test_kubeconfig_is_private_and_can_be_read_back(tmp_path: Path) -> None:
    path = tmp_path / "k" / "config"
    write_kubeconfig(path, server="https://h:1", ca_pem=b"CA", token="T", namespace="n")
    assert mode(path) == 0o600
    config = yaml.safe_load(path.read_text())
    assert config["contexts"][0]["context"]["namespace"] == "n"
    found = read_back(path)
    assert found is not None
    assert (found.server, found.ca_pem, found.token) == ("https://h:1", b"CA", "T")
    path.write_text("[]")
    assert read_back(path) is None
    assert read_back(tmp_path / "none") is None


def test_port_in_use_is_reported_with_remedy(facade: Facade) -> None:
    async def serve_again() -> None:
        await serve(
            facade.app, host="127.0.0.1", port=facade.port, certificates=facade.certificates
        )

    with pytest.raises(PortInUse, match=f"127.0.0.1:{facade.port} is in use .* --port"):
        asyncio.run(serve_again())


def test_plain_http_gets_no_answer(facade: Facade) -> None:
    with socket.create_connection(("127.0.0.1", facade.port), 10) as plain:
        plain.sendall(b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n")
        assert not plain.recv(100).startswith(b"HTTP/")


def test_client_without_our_ca_rejects_server_certificate(facade: Facade) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(facade.port, ssl.create_default_context())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tls_1_1_is_refused(facade: Facade) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")
    handshake(facade.port, context)
    context.minimum_version = ssl.TLSVersion.TLSv1_1
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionError)):
        handshake(facade.port, context)


def handshake(port: int, context: ssl.SSLContext) -> None:
    with (
        socket.create_connection(("127.0.0.1", port), 10) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1"),
    ):
        pass


def test_server_connections_send_answers_without_delay(facade: Facade) -> None:
    """Without TCP_NODELAY every answer on a kept connection waits 40 ms for an acknowledgement."""
    connection = facade.connection()
    try:
        facade.send(connection, "GET", "/version")
        connection.getresponse().read()

        async def options() -> list[int]:
            sockets = [
                each.transport.get_extra_info("socket")  # type: ignore[union-attr]
                for each in facade.server._server.server_state.connections
            ]
            return [each.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for each in sockets]

        found = facade.run(options())
    finally:
        connection.close()

    assert found
    assert all(found)
