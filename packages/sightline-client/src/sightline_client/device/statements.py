"""Keeps the meter's newest signed statement of a session on disk, so that its operator is paid whatever happens."""

import os
from pathlib import Path
from typing import Final

import anyio

from sightline_client._async.client import AsyncSightline
from sightline_client.device.log import log_line
from sightline_client.errors import NotFoundError, SightlineError

EVERY_S: Final = 30.0
FINAL_S: Final = 5.0
"""How long the end of a session waits for the final statement."""


async def keep_statements(client: AsyncSightline, session_id: str, directory: Path) -> None:
    """Save the newest statement of a session every 30 seconds until cancelled, and the final one then.

    Returns when the server has no escrow. `sightline claim` collects the charge with the file.
    """
    try:
        while await _save(client, session_id, directory):  # noqa: ASYNC110  # a statement is asked for, never announced
            await anyio.sleep(EVERY_S)
    finally:
        with anyio.move_on_after(FINAL_S, shield=True):
            await _save(client, session_id, directory)


async def _save(client: AsyncSightline, session_id: str, directory: Path) -> bool:
    """Save the present statement; returns whether there can be more."""
    try:
        statement = await client.sessions.statement(session_id)
    except NotFoundError:
        return False
    except SightlineError as error:
        log_line("statement_not_read", session_id=session_id, reason=str(error))
        return True
    path = anyio.Path(directory / f"{session_id}.json")
    partial = path.with_suffix(".part")
    try:
        await path.parent.mkdir(parents=True, exist_ok=True)
        await partial.write_text(statement.model_dump_json(by_alias=True))
        await anyio.to_thread.run_sync(os.replace, partial, path)
    except OSError as error:  # a full disk must not end the video
        log_line("statement_not_saved", level="warning", session_id=session_id, reason=str(error))
    return True
