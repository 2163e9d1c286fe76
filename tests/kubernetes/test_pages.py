"""The dashboard of a cluster: behind an authenticating proxy, or served on the user's machine.

Both show what the API server's authorizer lets the visitor see.
"""

import http.client
import json
import re
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.conftest import SETTINGS
from tests.kubernetes.plane import DEADLINE_S, Plane, budget, free_port, job, plane_on
from tests.kubernetes.test_questions import asked as asked  # one Run, and two users

PAGES = ("", "fleet", "runs", "queue", "budgets", "decisions", "report", "runs/team/train")
NAME_ALL = ("decisions",)  # pages that cannot be shown without other tenants' names


@pytest.fixture
def proxy(tmp_path: Path) -> Path:
    """A file with the certificate of the proxy and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "front-door")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path / "proxy.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    path.write_bytes(made.public_bytes(serialization.Encoding.PEM) + private)
    return path


class FrontDoor:
    """A client that sends what the proxy would send."""

    def __init__(self, port: int, proxy: Path | None) -> None:
        self._port = port
        self._trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._trust.check_hostname = False
        self._trust.verify_mode = ssl.CERT_NONE
        if proxy is not None:
            self._trust.load_cert_chain(proxy)

    def see(self, path: str, *users: str) -> tuple[int, str]:
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self._port, context=self._trust, timeout=DEADLINE_S
        )
        try:
            connection.putrequest("GET", f"/ui/{path}")
            for user in users:
                connection.putheader("X-Forwarded-User", user)
            connection.endheaders()
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()


def test_pages_behind_proxy_show_what_the_visitor_may_see(
    installed: Cluster, tmp_path: Path, proxy: Path
) -> None:
    settings = f"{SETTINGS}\nweb: {{identityHeader: X-Forwarded-User, clientCA: {proxy}}}\n"
    port = free_port()
    with plane_on(installed, tmp_path, settings) as plane:
        _grant_view(plane, "ann", "team")
        plane.kubelets.add("n1")
        plane.controller("a", "--pages", f"127.0.0.1:{port}")
        plane.kubectl.ok("apply", "-f", plane.kubectl.file(budget(), job("train", 8)))
        plane.until_phase("train", "Running")
        door = FrontDoor(port, proxy)
        for page in PAGES:
            status, text = door.see(page, "ann")
            assert status == (403 if page in NAME_ALL else 200), (page, text)
            assert page not in NAME_ALL or "query.hideTenants is on" in text
        assert "team/train" in door.see("runs", "ann")[1]
        # Refused: another tenant's page, a request without a user, and one with two users.
        assert "team/train" not in door.see("runs", "vic")[1]
        assert door.see("runs/team/train", "vic")[0] == 403
        assert door.see("ledger", "vic")[0] == 403
        assert door.see("")[0] == 401
        assert door.see("", "vic", "ann")[0] == 400
        pod = plane.pods()[0]["metadata"]["name"]
        status, text = door.see(f"runs/team/train/logs/{pod}", "ann")
        assert status == 501
        assert f"kubectl logs -n team {pod}" in text
        # A client without the proxy's certificate is not served.
        with pytest.raises((ssl.SSLError, ConnectionError, http.client.HTTPException)):
            FrontDoor(port, None).see("", "ann")


def _grant_view(plane: Plane, user: str, namespace: str) -> None:
    group = "rbac.authorization.k8s.io"
    made = plane.cluster.client.ask(
        "POST",
        f"/apis/{group}/v1/namespaces/{namespace}/rolebindings",
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": f"pages-{user}"},
            "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "leasehold-viewer"},
        },
    )
    assert made.status in (201, 409), made.body


def test_pages_option_requires_an_identity_header(plane: Plane) -> None:
    refused = plane.leasehold("controller", "--pages", "127.0.0.1:0")
    assert refused.returncode == 2
    assert "web.identityHeader" in refused.stderr


# Served on the user's machine, with the user's own credentials.


class Here:
    def __init__(self, link: str) -> None:
        parts = urlsplit(link)
        # The link has its own host name, because browsers send a host's cookies to all its ports.
        assert str(parts.hostname).endswith(".localhost")
        self._port = parts.port
        self.cookie = ""
        status, headers, _ = self._get(f"{parts.path}?{parts.query}")
        assert status == 200
        self.cookie = str(headers["set-cookie"]).partition(";")[0]

    def see(self, path: str) -> tuple[int, str]:
        status, _, text = self._get(f"/ui/{path}")
        return status, text

    def _get(self, path: str) -> tuple[int, http.client.HTTPMessage, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=DEADLINE_S)
        try:
            connection.request("GET", path, headers={"Cookie": self.cookie} if self.cookie else {})
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read().decode()
        finally:
            connection.close()


@contextmanager
def served_here(plane: Plane, user: str) -> Iterator[Here]:
    words = [sys.executable, "-u", "-m", "leasehold", "ui", "--here", "--kubeconfig",
             str(plane.cluster.kubeconfig(user))]  # fmt: skip
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield Here(process.stdout.readline().strip())
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(DEADLINE_S)
        assert process.stdout is not None
        process.stdout.close()


def test_ui_here_serves_all_pages_and_follows_changes(asked: Plane) -> None:
    with served_here(asked, "system") as here:
        for page in (*PAGES, "ledger"):
            status, text = here.see(page)
            assert status == 200, (page, text)
        assert "team/train" in here.see("runs")[1]
        found = json.loads(here.see("ledger.json?after=0")[1])
        assert [each["seq"] for each in found["lines"]] == list(range(1, found["head"]["seq"] + 1))
        assert found["lines"][-1]["digest"] == found["head"]["digest"]
        version = re.search(r'data-version="([^"]+)"', here.see("")[1])
        asked.kubectl.ok("apply", "-f", asked.kubectl.file(job("another", 8)))
        assert version is not None
        asked.until(lambda: "team/another" in here.see("runs")[1])
        # The new Run's plan is in the ledger, so the page's version changes.
        asked.until(lambda: version.group(1) not in here.see("")[1])


def test_ui_here_shows_only_what_its_user_may_see(asked: Plane) -> None:
    with served_here(asked, "vic") as here:
        status, text = here.see("runs")
        assert status == 200
        assert "team/train" not in text
        status, text = here.see("runs/team/train")
        assert status == 403
        assert "team" in text
