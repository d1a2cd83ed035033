"""The newest instant that the database holds: server time starts no earlier."""

from typing import Final

from sightline.storage.database.bridge import Database

# Each part is one look at the end of an index: recorded answers, sign-ins, sessions that are not over.
_NEWEST: Final = """
SELECT greatest(
  (SELECT max(at_ms) FROM idempotency),
  (SELECT max(signed_in_at_ms) FROM wallet_session),
  (SELECT max(updated_at_ms) FROM session WHERE state IN ('REQUESTED', 'ASSIGNED', 'LIVE')))
"""


async def newest_instant(database: Database) -> int:
    """Server time of the newest recorded answer, sign-in or step of an unfinished session; 0 if there is none.

    Raises:
        StoreUnavailableError: The database did not answer.
    """
    newest: int | None = await database.read(lambda connection: connection.fetchval(_NEWEST))
    return newest or 0
