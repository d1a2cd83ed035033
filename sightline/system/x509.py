"""Building blocks of the X.509 certificates that this server issues: for frames, and for its own listener."""

from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from sightline.ports.ids import Ids

_SLACK: Final = timedelta(hours=1)
"""Certificates are valid from this long before their creation, for verifiers with a slow clock."""


def certificate_builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, ids: Ids, now: datetime, days: int
) -> x509.CertificateBuilder:
    """Begin a certificate with what all of this server's certificates have."""
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(int.from_bytes(ids.token_bytes(16)) >> 1)
        .not_valid_before(now - _SLACK)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def key_usage(*, signs: bool) -> x509.KeyUsage:
    """Usage of a key that signs data, or of an authority's key that signs certificates."""
    return x509.KeyUsage(
        digital_signature=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=not signs,
        crl_sign=not signs,
        encipher_only=False,
        decipher_only=False,
    )


def name_of(common_name: str) -> x509.Name:
    """The distinguished name of a certificate of this server."""
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Sightline"),
            x509.NameAttribute(NameOID.COMMON_NAME, common_name[:64]),
        ]
    )


def pem_of(certificate: x509.Certificate) -> bytes:
    """A certificate as PEM."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def key_pem_of(key: ec.EllipticCurvePrivateKey) -> bytes:
    """A private key as PEM, not encrypted."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
