"""What commands print: JSON with the fields of the HTTP interface, or text."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import typer

from sightline_client.wording import ENDED

if TYPE_CHECKING:
    from sightline_client import Receipt
    from sightline_client.models import Model, Session


def print_warning(text: str, as_json: bool) -> None:
    """Print a sentence on stderr, as a JSON line if asked for."""
    typer.echo(json.dumps({"warning": text}) if as_json else text, err=True)


@contextmanager
def nothing_requested(is_requested: Callable[[], bool], *, as_json: bool) -> Iterator[None]:
    """Say at a Ctrl-C that nothing was requested, if that is so."""
    try:
        yield
    except KeyboardInterrupt:
        if not is_requested():
            print_warning("Nothing was requested.", as_json)
        raise


def print_value(value: "Model | dict[str, object]", as_json: bool, text: str) -> None:
    """Print a value as one line of JSON, or `text`."""
    if not as_json:
        typer.echo(text)
    elif isinstance(value, dict):
        typer.echo(json.dumps(value))
    else:
        typer.echo(value.model_dump_json(by_alias=True))


PAUSED: Final = {
    "GEOFENCE_EXIT": "the operator is not at the place",
    "LOCATION_STALE": "the operator's device sends no position",
    "MEDIA_LOST": "the operator's device sends no video",
}


def pause_text(reason: str) -> str:
    """Say why a session is paused."""
    return PAUSED.get(reason, reason)


def end_text(session: "Session") -> str:
    """Say why a session is over, or nothing if it is not."""
    return "" if session.end_reason is None else ENDED.get(str(session.end_reason), str(session.end_reason))


def say_end(session: "Session") -> None:
    """Print on stderr that a session has ended and why, unless its consumer ended it and knows."""
    if session.state.is_over and session.end_reason != "CONSUMER_ENDED":
        typer.echo(f"Session {session.id} has ended: {end_text(session)}.", err=True)


def time_text(at: datetime) -> str:
    """Format a time in UTC as in JSON, without fractions of a second."""
    return at.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def payment_text(receipt: "Receipt", *, is_escrow: bool) -> str:
    """Say what the transaction of a settled receipt did. Without a charge, in escrow, it returned the hold."""
    if receipt.charged > 0:
        return f"paid in {receipt.tx_hash}"
    if receipt.tx_hash is None:
        return "nothing to pay"
    return f"nothing to pay, {'hold returned' if is_escrow else 'recorded'} in {receipt.tx_hash}"
