"""Certificates for NATS servers and their clients, from the authority that `issue` made in a folder."""

from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from sightline.system.clock import utc_now
from sightline.system.ids import SystemIds
from sightline.system.x509 import certificate_builder, key_pem_of, name_of, pem_of

CLIENT = (ExtendedKeyUsageOID.CLIENT_AUTH,)
CLIENT_AND_SERVER = (*CLIENT, ExtendedKeyUsageOID.SERVER_AUTH)


def issue_certificate(folder: Path, name: str, usages: tuple[x509.ObjectIdentifier, ...]) -> tuple[Path, Path]:
    """Have the authority in this folder issue a certificate for 127.0.0.1. Returns certificate and key."""
    ca = x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes())
    ca_key = serialization.load_pem_private_key((folder / "ca_key.pem").read_bytes(), None)
    assert isinstance(ca_key, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    address = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    certificate = (
        certificate_builder(name_of(name), ca.subject, key.public_key(), SystemIds(), utc_now(), days=1)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(address, critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    certificate_path, key_path = folder / f"{name}.pem", folder / f"{name}_key.pem"
    certificate_path.write_bytes(pem_of(certificate))
    key_path.write_bytes(key_pem_of(key))
    return certificate_path, key_path
