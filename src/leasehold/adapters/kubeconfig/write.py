"""Writes a kubeconfig for kubectl: server, CA and token, readable only by its owner.

Called by `leasehold up` and `leasehold token`. Writes one context and replaces the file; also reads
such a file back. Merging into an existing kubeconfig is left to kubectl.
"""

import base64
from dataclasses import dataclass
from pathlib import Path

import yaml

from leasehold.adapters.private_file import write_private

CONTEXT = "leasehold"


def write_kubeconfig(
    path: Path, *, server: str, ca_pem: bytes, token: str, namespace: str = "default"
) -> None:
    cluster = {
        "server": server,
        "certificate-authority-data": base64.b64encode(ca_pem).decode("ascii"),
    }
    context = {"cluster": CONTEXT, "user": CONTEXT, "namespace": namespace}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": CONTEXT, "cluster": cluster}],
        "users": [{"name": CONTEXT, "user": {"token": token}}],
        "contexts": [{"name": CONTEXT, "context": context}],
        "current-context": CONTEXT,
    }
    write_private(path, yaml.safe_dump(config, sort_keys=False).encode())


@dataclass(frozen=True, slots=True)
class WrittenKubeconfig:
    """The content of a kubeconfig written by `write_kubeconfig`."""

    server: str
    ca_pem: bytes
    token: str


def read_back(path: Path) -> WrittenKubeconfig | None:
    """Return the content of such a file; None if the file is missing or another program has changed
    its form."""
    try:
        config = yaml.safe_load(path.read_bytes())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        ca_pem = base64.b64decode(cluster["certificate-authority-data"], validate=True)
        return WrittenKubeconfig(
            server=str(cluster["server"]), ca_pem=ca_pem, token=str(user["token"])
        )
    except (OSError, yaml.YAMLError, LookupError, TypeError, ValueError):
        return None
