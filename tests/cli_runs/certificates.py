"""A certificate authority for a test, and certificates that it signs."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


@dataclass(frozen=True)
class Authority:
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])


def _builder(subject: str, issuer: str, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_name(subject))
        .issuer_name(_name(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
    )


def authority(name: str = "test CA") -> Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    built = _builder(name, name, key).add_extension(
        x509.BasicConstraints(ca=True, path_length=None), critical=True
    )
    return Authority(key, built.sign(key, hashes.SHA256()))


def certificate(ca: Authority, address: str) -> bytes:
    """Return a server certificate for an address or a name, and its key, in one PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    is_address = address.replace(".", "").isdecimal()
    name = x509.IPAddress(ip_address(address)) if is_address else x509.DNSName(address)
    names = x509.SubjectAlternativeName([name])
    [issuer] = ca.certificate.subject
    built = _builder(address, str(issuer.value), key).add_extension(names, critical=False)
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return built.sign(ca.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM) + private
