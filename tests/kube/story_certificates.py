"""Certificates for questions that somebody else makes, as cert-manager does: they come, and change,
while the controller answers."""

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli_runs.certificates import Authority, authority, certificate
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.plane import QUERY_API, Plane, plane_on

NAME = "leasehold-query.leasehold-system.svc"


@pytest.fixture
def plane(cluster: Cluster, tmp_path: Path) -> Iterator[Plane]:
    cluster.install()
    with plane_on(cluster, tmp_path, "") as found:
        found.patience_s = 150  # it is looked at now and then
        yield found
        found.stop_answering()


def _put(folder: Path, ca: Authority) -> None:
    """As a Secret of theirs appears in a pod: all of it at once."""
    both = certificate(ca, NAME)
    cut = both.index(b"-----BEGIN PRIVATE")
    new = folder.with_name(f"{folder.name}.new")
    new.mkdir()
    for name, content in (("tls.crt", both[:cut]), ("tls.key", both[cut:]),
                          ("ca.crt", ca.pem.encode())):  # fmt: skip
        (new / name).write_bytes(content)
    if folder.exists():
        folder.rename(folder.with_name(f"{folder.name}.{ca.certificate.serial_number}"))
    new.rename(folder)


def _bundle(plane: Plane) -> str:
    return base64.b64decode(plane.get(QUERY_API)["spec"]["caBundle"]).decode()


@pytest.mark.deadline(500)
def test_they_are_used_when_they_come_and_when_they_change(plane: Plane, tmp_path: Path) -> None:
    folder = tmp_path / "certificates"
    plane.answering("a", "--certificates", str(folder))
    ours = _bundle(plane)
    # A replica is Available a moment before it decides.
    plane.until(lambda: plane.leasehold("runs", "list").returncode == 0)
    for ca in (authority("first"), authority("second")):
        before = _bundle(plane)
        _put(folder, ca)
        plane.until(lambda ca=ca: ca.pem in _bundle(plane))  # type: ignore[misc]
        # Whoever has not heard of it yet still believes the one before.
        assert before in _bundle(plane)
        plane.until(lambda: plane.leasehold("runs", "list").returncode == 0)
    assert ours in _bundle(plane)
    # Another one begins with it, and with no other.
    plane.stop_controllers()
    plane.answering("b", "--certificates", str(folder))
    plane.until(lambda: _bundle(plane) == ca.pem)  # the one before was Available, too
    plane.until(lambda: plane.leasehold("runs", "list").returncode == 0)
