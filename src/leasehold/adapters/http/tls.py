"""The server's certificates: a CA created at the first start, and a server certificate.

Called by `leasehold up` before it listens. The CA lives as long as its folder, so that kubeconfigs
stay valid. The server certificate is replaced when it is about to expire or the host names change.
Private keys have mode 0600 and never leave the folder.
"""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from leasehold.adapters.private_file import write_private

ALWAYS_SERVED = ("127.0.0.1", "::1", "localhost")
CA_LIFE = timedelta(days=3650)
LEAF_LIFE = timedelta(days=397)  # the maximum that clients accept
RENEW_BEFORE = timedelta(days=30)
CLOCK_SKEW = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class Certificates:
    ca_pem: bytes
    cert_path: Path
    key_path: Path


class BadCertificates(Exception):  # noqa: N818 - named for the condition
    """A file of the folder is not a certificate; the message names the file and a remedy."""


def ensure_certificates(folder: Path, hosts: Sequence[str]) -> Certificates:
    """Return the folder's certificates; create or renew them if necessary."""
    now = datetime.now(UTC)
    ca_path, ca_key_path = folder / "ca.crt", folder / "ca.key"
    cert_path, key_path = folder / "server.crt", folder / "server.key"
    if not ca_path.exists() or not ca_key_path.exists() or _read(ca_path).not_valid_after_utc < now:
        _make_ca(ca_path, ca_key_path, now)
        cert_path.unlink(missing_ok=True)
    ca = _read(ca_path)
    names = sorted({*ALWAYS_SERVED, *hosts})
    if not key_path.exists() or not _still_serves(cert_path, ca, names, now):
        _make_leaf(cert_path, key_path, signer=(ca, _read_key(ca_key_path)), names=names, now=now)
    return Certificates(
        ca_pem=ca.public_bytes(serialization.Encoding.PEM), cert_path=cert_path, key_path=key_path
    )


def _make_ca(path: Path, key_path: Path, now: datetime) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    # Distinct CA names, so that no client confuses the authorities of two folders.
    serial = x509.random_serial_number()
    name = _name(f"leasehold-ca-{serial:x}"[:40])
    usage = _key_usage(signs_certificates=True)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(serial)
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + CA_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    write_private(key_path, _key_bytes(key))
    write_private(path, certificate.public_bytes(serialization.Encoding.PEM))


def _make_leaf(
    path: Path,
    key_path: Path,
    *,
    signer: tuple[x509.Certificate, ec.EllipticCurvePrivateKey],
    names: Sequence[str],
    now: datetime,
) -> None:
    ca, ca_key = signer
    key = ec.generate_private_key(ec.SECP256R1())
    issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
    certificate = (
        x509.CertificateBuilder()
        .subject_name(_name("leasehold"))
        .issuer_name(ca.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(min(now + LEAF_LIFE, ca.not_valid_after_utc))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.SubjectAlternativeName([_alternative(name) for name in names]), critical=False
        )
        .add_extension(issuer_key, critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    write_private(key_path, _key_bytes(key))
    write_private(path, certificate.public_bytes(serialization.Encoding.PEM))


def _still_serves(path: Path, ca: x509.Certificate, names: Sequence[str], now: datetime) -> bool:
    if not path.exists():
        return False
    leaf = _read(path)
    served = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return (
        leaf.issuer == ca.subject
        and leaf.not_valid_after_utc > now + RENEW_BEFORE
        and list(served) == [_alternative(name) for name in names]
    )


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _key_bytes(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _read(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except ValueError as error:
        raise BadCertificates(
            f"{path} is not a certificate; restore it, or remove its folder and create new "
            "kubeconfigs"
        ) from error


def _read_key(path: Path) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except ValueError as error:
        raise BadCertificates(
            f"{path} is not a private key; restore it, or remove its folder and create new "
            "kubeconfigs"
        ) from error
    assert isinstance(key, ec.EllipticCurvePrivateKey), "we make no others"
    return key
