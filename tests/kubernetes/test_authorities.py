"""The front proxy's authority and the controller's own certificate may change while it serves."""

import asyncio
import socket
import ssl
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pytest
from cryptography import x509
from tests.cli_runs.certificates import Authority, authority, certificate

from leasehold.adapters.kubernetes.aggregated import Aggregated
from leasehold.adapters.kubernetes.front_proxy import FrontProxy, ProxiedUser
from leasehold.core.names import Wire

HERE = "127.0.0.1"


async def _answer(asker: ProxiedUser, question: str, _: Mapping[str, str], __: Wire | None) -> Wire:
    return {"question": question, "user": asker.user}


def _proxy(ca: Authority, *names: str) -> FrontProxy:
    return FrontProxy(ca.pem, names, ("X-Remote-User",), ("X-Remote-Group",))


def _file(folder: Path, name: str, ca: Authority) -> Path:
    path = folder / name
    path.write_bytes(certificate(ca, HERE))
    return path


async def _ask(port: int, ours: Authority, client: Path) -> tuple[int, int]:
    """Return the answer's status and the serial number of the server's certificate; both are 0 if
    the connection was refused."""
    trust = ssl.create_default_context(cadata=ours.pem)
    trust.load_cert_chain(client)
    try:
        reader, writer = await asyncio.open_connection(HERE, port, ssl=trust)
    except OSError:
        return 0, 0
    shown = writer.get_extra_info("ssl_object").getpeercert(True)
    writer.write(
        b"GET /apis/query.rq.davidlangworthy.io/v1/questions/runs HTTP/1.1\r\nHost: here\r\n"
        b"X-Remote-User: ann\r\nConnection: close\r\n\r\n"
    )
    try:
        words = (await reader.read()).split()
    except OSError:
        return 0, 0
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
    if not words:
        return 0, 0  # the server closed the connection
    return int(words[1]), x509.load_der_x509_certificate(shown).serial_number


def test_authority_and_certificate_change_without_restart(tmp_path: Path) -> None:
    async def main() -> None:
        ours, old, new = authority("ours"), authority("old"), authority("new")
        by_old, by_new = _file(tmp_path, "old.pem", old), _file(tmp_path, "new.pem", new)
        first, second = _file(tmp_path, "first.pem", ours), _file(tmp_path, "second.pem", ours)
        with socket.socket() as probe:
            probe.bind((HERE, 0))
            port = probe.getsockname()[1]
        aggregated = Aggregated(_proxy(old), _answer)
        served = await aggregated.serve(HERE, port, first, first)
        try:
            status, before = await _ask(port, ours, by_old)
            assert status == 200
            assert await _ask(port, ours, by_new) == (0, 0)
            aggregated.believe(_proxy(new))
            aggregated.serve_as(second, second)
            status, after = await _ask(port, ours, by_new)
            assert (status, after != before) == (200, True)
            # The new names apply too.
            aggregated.believe(_proxy(new, "somebody-else"))
            assert (await _ask(port, ours, by_new))[0] == 401
        finally:
            await served.cleanup()

    asyncio.run(main())


@pytest.mark.parametrize("names", [(), (HERE,)])
def test_asker_is_the_user_that_the_api_server_names(names: tuple[str, ...]) -> None:
    found = _proxy(authority(), *names)
    peer = {"subject": ((("commonName", HERE),),)}
    assert found.asker(peer, {"X-Remote-User": "ann", "X-Remote-Group": "people"}).user == "ann"
