"""Check the TLS certificate and key files before anything starts."""

import ssl

from sightline.bootstrap.failures.errors import StartError, check_setting
from sightline.config import Settings


def check_tls_files(settings: Settings) -> None:
    """Load the certificate and the key once if TLS is enabled.

    Raises:
        StartError: A file cannot be read, is not PEM, is encrypted, or the key does not belong to the certificate.
    """
    if settings.tls_cert is None or settings.tls_key is None:
        return
    for name, path in (("SIGHTLINE_TLS_CERT", settings.tls_cert), ("SIGHTLINE_TLS_KEY", settings.tls_key)):
        with check_setting(name):
            path.read_bytes()
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(settings.tls_cert, settings.tls_key, password=_refuse_password)
    except (ssl.SSLError, ValueError) as error:
        raise StartError(
            f"SIGHTLINE_TLS_CERT {settings.tls_cert} and SIGHTLINE_TLS_KEY {settings.tls_key} cannot be used: {error}."
        ) from error


def _refuse_password() -> str:
    # Without a callback OpenSSL would prompt for the password on the terminal.
    raise ValueError("the key is encrypted with a password; store it decrypted")
