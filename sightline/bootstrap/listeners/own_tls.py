"""TLS for devices on the same network: an own authority in the data directory that issues the listener's certificate.

Browsers give camera and position to https pages only, and a public authority issues no certificate for a private
address. A person installs this authority on the phone once (docs/guides/console.md).
"""

import ipaddress
import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TypeAlias, final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from sightline.domain.value import Value
from sightline.ports.ids import Ids
from sightline.system.files import write_durably
from sightline.system.x509 import certificate_builder, key_pem_of, key_usage, name_of, pem_of

FOLDER: Final = "tls"
CA_KEY: Final = "ca_key.pem"
CA: Final = "ca.pem"
CERTIFICATE: Final = "server.pem"
KEY: Final = "server_key.pem"
CA_DAYS: Final = 3_650
SERVER_DAYS: Final = 800
"""Apple accepts at most 825 days from an authority that a user installed (support.apple.com/103769)."""
NETWORKS: Final = (
    "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16",
    "::1/128", "fc00::/7", "fe80::/10",
)  # fmt: skip
"""The authority may name addresses of private networks only: its key, if stolen, opens no public site."""
NAMES: Final = ("localhost", "local")
_UNUSED_PEER: Final = ("192.0.2.1", 9)
"""RFC 5737: no host has it. Connecting a UDP socket sends nothing; it chooses the address of the way out."""

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address


@final
class OwnTls(Value, kw_only=True):
    """Files of the listener's certificate, and what devices need to trust it."""

    certificate: Path
    key: Path
    ca: bytes
    """PEM."""
    fingerprint: str
    """SHA-256 of the authority, as devices show it."""
    address: str
    """Address of this machine on the network; loopback if there is none."""
    left_out: str | None
    """Address of this machine for which there is no certificate, because it is not of a private network."""


def issue(data_dir: Path, ids: Ids, now_ms: int, address: str | None, hostname: str) -> OwnTls:
    """Read the authority of this data directory, or create it, and issue a certificate for the listener.

    The certificate and its key are new at each start, because the machine's address changes.

    Args:
        address: Address of this machine on its network. One of a public network is left out.

    Raises:
        OSError: The folder cannot be read or written.
        ValueError: A file of the authority is damaged. It is not replaced: devices trust it.
    """
    folder = data_dir / FOLDER
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    if not (folder / CA).exists():
        _create_authority(folder, ids, now)
    ca_key = serialization.load_pem_private_key((folder / CA_KEY).read_bytes(), None)
    ca_pem = (folder / CA).read_bytes()
    ca = x509.load_pem_x509_certificate(ca_pem)
    if not isinstance(ca_key, ec.EllipticCurvePrivateKey) or ca.public_key() != ca_key.public_key():
        raise ValueError(f"{folder / CA_KEY} is not the key of {folder / CA}. Restore both, or remove both")
    own = [found for found in map(ipaddress.ip_address, [address] if address else []) if _is_private(found)]
    loopback: list[Address] = [ipaddress.ip_address("127.0.0.1"), ipaddress.ip_address("::1")]
    short = hostname.partition(".")[0].lower()
    names = ["localhost", *([f"{short}.local"] if short.isascii() and short else [])]
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        certificate_builder(name_of("Sightline server"), ca.subject, key.public_key(), ids, now, SERVER_DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(key_usage(signs=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        .add_extension(
            x509.SubjectAlternativeName(
                [*map(x509.DNSName, names), *map(x509.IPAddress, dict.fromkeys([*own, *loopback]))]
            ),
            critical=False,
        )
        .sign(ca_key, hashes.SHA256())
    )
    write_durably(folder / KEY, key_pem_of(key))
    write_durably(folder / CERTIFICATE, pem_of(certificate) + ca_pem)
    return OwnTls(
        certificate=folder / CERTIFICATE,
        key=folder / KEY,
        ca=ca_pem,
        fingerprint=ca.fingerprint(hashes.SHA256()).hex(":").upper(),
        address=str((own or loopback)[0]),
        left_out=None if own else address,
    )


def _create_authority(folder: Path, ids: Ids, now: datetime) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP256R1())
    name = name_of("Sightline local authority")
    permitted: list[x509.GeneralName] = [
        *(x509.IPAddress(ipaddress.ip_network(network)) for network in NETWORKS),
        *map(x509.DNSName, NAMES),
    ]
    authority = (
        certificate_builder(name, name, key.public_key(), ids, now, CA_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(key_usage(signs=False), critical=True)
        .add_extension(x509.NameConstraints(permitted_subtrees=permitted, excluded_subtrees=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    # The certificate is written last: its presence says that the key is complete.
    write_durably(folder / CA_KEY, key_pem_of(key))
    write_durably(folder / CA, pem_of(authority))


def _is_private(address: Address) -> bool:
    return any(address in ipaddress.ip_network(network) for network in NETWORKS)


def own_address() -> str | None:
    """Address of this machine on its network; None without a network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_UNUSED_PEER)
            return str(probe.getsockname()[0])
        except OSError:
            return None
