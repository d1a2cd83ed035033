"""`sightline secrets accept`: use a database with other secrets than those that its servers have used until now."""

import sys
from collections.abc import Callable

import trio

from sightline.bootstrap.failures.errors import StartError
from sightline.bootstrap.maintenance.stopped_server import on_stopped_server, open_stopped_database, place_of_database
from sightline.config import Settings
from sightline.storage.postgres.operations.secrets_check import (
    replace_fingerprint,
    running_hosts,
    stored_fingerprint,
)
from sightline.system.secrets import Secrets, stored_secrets


def run_accept_secrets(settings: Settings, confirm: Callable[[str], bool]) -> int:
    """Record the present secrets as those of the database, if a person confirms. All servers must be stopped.

    Returns:
        The exit code.
    """
    path = settings.secrets_path

    def accept(begin: Callable[[], None]) -> bool:
        secrets = stored_secrets(path)
        if secrets is None:
            raise StartError(f"{path} does not exist or cannot be read. Run this as the account of the server.")
        return trio.run(_accept, settings, secrets, confirm, begin)

    if not on_stopped_server(settings, accept):
        return 1
    sys.stdout.write(f"The database of {place_of_database(settings)} accepts the secrets in {path}.\n")
    return 0


async def _accept(
    settings: Settings, secrets: Secrets, confirm: Callable[[str], bool], begin: Callable[[], None]
) -> bool:
    async with open_stopped_database(settings, "sightline secrets") as database:
        stored = await stored_fingerprint(database)
        if stored is None:
            raise StartError("No server has used this database yet: its first start accepts the secrets.")
        if hosts := await running_hosts(database):
            raise StartError(
                f"A server of this database runs on {' and '.join(hosts)}. Stop all servers first, and wait 6 s for "
                "one that was killed."
            )
        where, path = place_of_database(settings), settings.secrets_path
        if stored == secrets.fingerprint:
            effect = "They are the ones that it has used until now."
        else:
            effect = (
                "They are not the ones that it has used until now. Of what was replaced: a new key_pepper ends every "
                "API key, share link and program's access and changes the secrets of webhooks; a new cookie_key ends "
                "every sign-in; with a new token_key browsers must allow messages again. Give every server this file."
            )
        if not await trio.to_thread.run_sync(
            confirm, f"Use the secrets in {path} with the database of {where}? {effect}"
        ):
            return False
        begin()
        if not await replace_fingerprint(database, stored, secrets.fingerprint):
            raise StartError("A server of this database was started meanwhile. Stop all servers, and run this again.")
        return True
