"""Certificates for queries that another component issues, such as cert-manager: they appear and
change while the controller answers."""

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
        found.patience_s = 150  # the controller checks the files only now and then
        yield found
        found.stop_answering()


def _put(folder: Path, ca: Authority) -> None:
    """Replace the folder at once, as a mounted Secret changes in a pod."""
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
def test_certificates_are_used_when_they_appear_and_when_they_change(
    plane: Plane, tmp_path: Path
) -> None:
    folder = tmp_path / "certificates"
    plane.answering("a", "--certificates", str(folder))
    ours = _bundle(plane)
    # A replica is Available a moment before it leads.
    plane.until(lambda: plane.leasehold("runs", "list").returncode == 0)
    for ca in (authority("first"), authority("second")):
        before = _bundle(plane)
        _put(folder, ca)
        plane.until(lambda ca=ca: ca.pem in _bundle(plane))  # type: ignore[misc]
        # The previous authority stays in the bundle for clients that do not know the new one yet.
        assert before in _bundle(plane)
        plane.until(lambda: plane.leasehold("runs", "list").returncode == 0)
    assert ours in _bundle(plane)
    # A new controller starts with the new authority only.
    plane.stop_controllers()
    plane.answering("b", "--certificates", str(folder))
    plane.until(lambda: _bundle(plane) == ca.pem)  # Available may still be the old controller's
    plane.until(lambda: plane.leasehold("runs", "list").returncode == 0)
