"""The key and the certificates that sign frames: an own root and a signing certificate, kept in the data directory.

The signing certificate follows the C2PA certificate profile (C2PA 2.1, section 14.5): digitalSignature, an extended key
usage for documents, and an issuer other than itself.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Self, final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from sightline.domain.value import Value, hiding
from sightline.ports.ids import Ids
from sightline.system.files import write_durably
from sightline.system.x509 import certificate_builder, key_pem_of, key_usage, name_of, pem_of

FOLDER: Final = "evidence"
ROOT_KEY: Final = "root_key.pem"
ROOT: Final = "root.pem"
ROOT_DAYS: Final = 18_250
SIGNING_DAYS: Final = 9_125
"""25 years. Without a timestamp authority a verifier compares the validity with the present time, so a frame verifies
for this long. The signing key is in memory only."""


@final
class SigningIdentity(Value, kw_only=True):
    """A private key and its certificate chain."""

    key: ec.EllipticCurvePrivateKey
    """P-256; signs by ES256."""
    chain: bytes
    """PEM: the signing certificate, then its issuers."""

    __repr__ = hiding("key")

    @classmethod
    def from_files(cls, key_file: Path, chain_file: Path) -> Self:
        """Read a key and a chain that the operator of the server provides.

        Raises:
            OSError: A file cannot be read.
            ValueError: A file is not PEM, the key is not P-256, or the key is not that of the first certificate.
        """
        key = serialization.load_pem_private_key(key_file.read_bytes(), None)
        chain = chain_file.read_bytes()
        if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
            raise ValueError(f"{key_file} is not a P-256 key")
        if x509.load_pem_x509_certificates(chain)[0].public_key() != key.public_key():
            raise ValueError(f"{key_file} is not the key of the first certificate of {chain_file}")
        return cls(key=key, chain=chain)


def load_identity(data_dir: Path, ids: Ids, now_ms: int, subject: str) -> SigningIdentity:
    """Read the root of this data directory, or create it at the first start, and issue a signing certificate.

    The signing key is new at each start; it is never stored. The root is kept, so that frames of earlier runs verify.

    Args:
        subject: Common name of the signing certificate: the server's URL.

    Raises:
        OSError: The folder cannot be read or written.
        ValueError: A file in it is damaged. It is not replaced: stored frames would no longer verify.
    """
    folder = data_dir / FOLDER
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    if not (folder / ROOT).exists():
        _create_root(folder, ids, now)
    root_key = serialization.load_pem_private_key((folder / ROOT_KEY).read_bytes(), None)
    root_pem = (folder / ROOT).read_bytes()
    root = x509.load_pem_x509_certificate(root_pem)
    if not isinstance(root_key, ec.EllipticCurvePrivateKey) or root.public_key() != root_key.public_key():
        raise ValueError(f"{folder / ROOT_KEY} is not the key of {folder / ROOT}. Restore both from a backup")
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        certificate_builder(name_of(subject), root.subject, key.public_key(), ids, now, SIGNING_DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(key_usage(signs=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.EMAIL_PROTECTION]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(root_key.public_key()), critical=False)
        .sign(root_key, hashes.SHA256())
    )
    return SigningIdentity(key=key, chain=pem_of(certificate) + root_pem)


def _create_root(folder: Path, ids: Ids, now: datetime) -> None:
    folder.mkdir(mode=0o700, exist_ok=True)
    key = ec.generate_private_key(ec.SECP256R1())
    name = name_of("Sightline frame root")
    root = (
        certificate_builder(name, name, key.public_key(), ids, now, ROOT_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(key_usage(signs=False), critical=True)
        .sign(key, hashes.SHA256())
    )
    # The certificate is written last: its presence says that the key is complete.
    write_durably(folder / ROOT_KEY, key_pem_of(key))
    write_durably(folder / ROOT, pem_of(root))
