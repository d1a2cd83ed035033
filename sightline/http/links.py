"""Links that are shown to people, and who can open them."""

from urllib.parse import urlsplit

from sightline.http.pipeline.listener_access import LOOPBACK


def other_devices_hint(url: str) -> str | None:
    """Say why another device cannot open a link, and what the host sets; None if it can."""
    host = urlsplit(url).hostname or ""
    if host not in LOOPBACK:
        return None
    return (
        f"Another device cannot open {host}, which is the server's own machine only. Set SIGHTLINE_HOST=0.0.0.0, and "
        "SIGHTLINE_PUBLIC_URL to the address at which others reach the server. Phones on the same network need TLS: "
        "`sightline serve --tls auto`."
    )
