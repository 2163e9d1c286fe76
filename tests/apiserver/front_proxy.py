"""The certificate with which an API server passes requests on to other servers."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

NAME = "front-proxy"


def make_front_proxy(folder: Path) -> list[str]:
    """Create the certificates and return the API server's options that name them."""
    folder.mkdir()
    now = datetime.now(UTC)
    ca_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    ca_name = _name("front-proxy-ca")
    for name, public, issuer, is_ca in (
        (ca_name, ca_key.public_key(), ca_name, True),
        (_name(NAME), key.public_key(), ca_name, False),
    ):
        made = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(issuer)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(minutes=10))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
            .sign(ca_key, hashes.SHA256())
        )
        file = folder / ("ca.crt" if is_ca else "client.crt")
        file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    (folder / "client.key").write_bytes(private)
    return [
        f"--requestheader-client-ca-file={folder / 'ca.crt'}",
        f"--proxy-client-cert-file={folder / 'client.crt'}",
        f"--proxy-client-key-file={folder / 'client.key'}",
        f"--requestheader-allowed-names={NAME}",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
    ]


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])
