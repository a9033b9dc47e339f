"""Keys and certificates, made with `cryptography`: an authority, and certificates by it for one name each."""

from __future__ import annotations

import datetime

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

__all__ = ["authority", "issued"]


def authority(name: str, earlier: datetime.timedelta, good: datetime.timedelta) -> tuple[bytes, bytes]:
    """Return the key and the certificate of a new authority, PEM; it is good ten times as long as what it issues."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _subject(name)
    made = (
        _begun(subject, subject, key.public_key(), earlier, 10 * good)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    return _pem(key), made.public_bytes(Encoding.PEM)


def issued(
    key: bytes, certificate: bytes, name: str, earlier: datetime.timedelta, good: datetime.timedelta
) -> tuple[bytes, bytes]:
    """Return a certificate by the authority for a server and client of this name, and its new key, PEM."""
    signer = load_pem_private_key(key, None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)  # `authority` made it
    own = ec.generate_private_key(ec.SECP256R1())
    issuer = x509.load_pem_x509_certificate(certificate).subject
    made = (
        _begun(_subject(name), issuer, own.public_key(), earlier, good)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
            critical=False,
        )
        .sign(signer, hashes.SHA256())
    )
    return made.public_bytes(Encoding.PEM), _pem(own)


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _begun(
    subject: x509.Name,
    issuer: x509.Name,
    public: ec.EllipticCurvePublicKey,
    earlier: datetime.timedelta,
    good: datetime.timedelta,
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return x509.CertificateBuilder(
        issuer, subject, public, x509.random_serial_number(), now - earlier, now + good
    )


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
