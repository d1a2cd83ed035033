"""Whether the server that the commands of a consumer call is the one whose chain was paid."""

import os
from typing import Final

from sightline_client import Sightline, SightlineError
from sightline_client.commands.access import has_transaction
from sightline_client.commands.client_settings import VARIABLES, load_client_settings, settings_path
from sightline_client.retry import RetryPolicy

TIMEOUT_S: Final = 5.0
"""The payment is made already: a server that is slow or down is not waited for."""


def other_server_warning(tx_hash: str, paid_url: str | None) -> str | None:
    """Say that SIGHTLINE_URL, or the settings file, names a server whose chain does not have a payment.

    None if it has, if none is named, or if the server does not answer.

    Args:
        paid_url: URL of the server that was paid, if it is known.
    """
    try:
        named = load_client_settings().url
        if not named or named.rstrip("/") == paid_url:
            return None
        with Sightline(named, "", retry=RetryPolicy(attempts=1), timeout_s=TIMEOUT_S) as sl:
            if has_transaction(sl.config(), tx_hash):
                return None
    except (SightlineError, ValueError):
        return None
    by = VARIABLES["url"] if os.environ.get(VARIABLES["url"]) else str(settings_path())
    return (
        f"{by} names another server, {named}, and the wallet got nothing on its chain. To pay there, name the data "
        "directory of that server with --data-dir."
    )
