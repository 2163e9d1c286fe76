"""TLS settings from a kubeconfig, and the credentials of the pod in which this process runs."""

import os
import ssl
import tempfile
from pathlib import Path

from leasehold.adapters.kubeconfig.read import BadKubeconfig, KubeContext

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def trust_of(context: KubeContext) -> ssl.SSLContext:
    """Return the TLS context for a server; raise `BadKubeconfig` if a certificate or key cannot be
    used."""
    try:
        trust = ssl.create_default_context(
            cafile=context.ca_file or None,
            cadata=context.ca_data.decode("ascii", "replace") if context.ca_data else None,
        )
        if not context.verify:
            trust.check_hostname = False
            trust.verify_mode = ssl.CERT_NONE
        if context.cert_data:
            _load_chain(trust, context.cert_data, context.key_data)
        elif context.cert_file:
            trust.load_cert_chain(context.cert_file, context.key_file or None)
    except (OSError, ssl.SSLError) as error:
        raise BadKubeconfig(
            f"{context.files}: a certificate or key cannot be used: {error}"
        ) from None
    return trust


def tls_material(context: KubeContext) -> tuple[object, ...]:
    """Return the server's address, the certificates and the keys. Open connections need not be
    replaced while the returned value stays equal."""
    files = (context.ca_file, context.cert_file, context.key_file)
    stamps = tuple(Path(each).stat().st_mtime_ns if Path(each).is_file() else 0 for each in files)
    return (context.server, context.ca_data, context.cert_data, context.key_data, *files, stamps)


def is_in_cluster() -> bool:
    """Return whether this process runs in a pod with a service account."""
    return bool(os.environ.get("KUBERNETES_SERVICE_HOST")) and (SERVICE_ACCOUNT / "token").is_file()


def in_cluster(folder: Path = SERVICE_ACCOUNT) -> KubeContext:
    """Return a context with the service account of our pod. Kubernetes replaces the account's token
    from time to time, so call this again after a 401."""
    host = os.environ.get("KUBERNETES_SERVICE_HOST", "")
    port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise BadKubeconfig(
            "leasehold does not run in a pod (KUBERNETES_SERVICE_HOST is not set); name a "
            "kubeconfig"
        )
    try:
        token = (folder / "token").read_text(encoding="ascii").strip()
        namespace = (folder / "namespace").read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise BadKubeconfig(f"{folder}: the service account cannot be read: {error}") from None
    address = f"[{host}]" if ":" in host else host
    return KubeContext(
        name="in-cluster",
        server=f"https://{address}:{port}",
        user="service account",
        namespace=namespace or "default",
        ca_file=str(folder / "ca.crt"),
        token=token,
        files=str(folder),
    )


def _load_chain(trust: ssl.SSLContext, cert: bytes, key: bytes) -> None:
    """Load a client certificate through a temporary file, because OpenSSL reads only files."""
    with tempfile.TemporaryDirectory(prefix="leasehold-") as folder:
        chain = Path(folder) / "client.pem"
        chain.touch(mode=0o600)
        chain.write_bytes(cert + b"\n" + key)
        trust.load_cert_chain(chain)
