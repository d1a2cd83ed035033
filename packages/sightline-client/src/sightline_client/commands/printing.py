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
    from sightline_client.models import Delivery, Model, Session


GAP_S: Final = 5.0
"""A longer time without a picture is worth a word. Viewers report every three seconds."""


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
    "LOCATION_STALE": "no position of the operator arrives",
    "MEDIA_LOST": "no video of the operator arrives",
}


def pause_text(reason: str) -> str:
    """Say why a session is paused."""
    return PAUSED.get(reason, reason)


def end_text(session: "Session") -> str:
    """Say why a session is over, or nothing if it is not."""
    return "" if session.end_reason is None else ENDED.get(str(session.end_reason), str(session.end_reason))


def next_step_text(session: "Session") -> str:
    """Say how a session that is not over goes on, and what to run."""
    ends, until = f"`sightline end {session.id}`", ""
    if session.expires_at is not None:
        until = f" until {time_text(session.expires_at)}"
    if session.state == "LIVE":
        return f"It runs until {ends}; `sightline frames {session.id}` saves its frames."
    again = f"No command dispatches it again: to have another operator, withdraw it with {ends} and request a new one."
    if session.state == "REQUESTED":
        return f"No operator has it. Operators that see it may accept it{until}. {again}"
    return (
        f"Its operator has{until} to start; `sightline sessions {session.id}` says when it is LIVE, and it then runs "
        f"until {ends}. If the operator declines or does not start, it is REQUESTED again. {again}"
    )


def say_end(session: "Session") -> None:
    """Print on stderr that a session has ended and why, unless its consumer ended it and knows."""
    if session.state.is_over and session.end_reason != "CONSUMER_ENDED":
        typer.echo(f"Session {session.id} has ended: {end_text(session)}.", err=True)


def time_text(at: datetime) -> str:
    """Format a time in UTC as in JSON, without fractions of a second."""
    return at.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def delivery_text(delivery: "Delivery | None") -> str:
    """Say which pictures of a session reached the consumer."""
    if delivery is None:
        return "none is known to have reached the consumer"
    gap_s = delivery.longest_gap_ms / 1000
    gap = f", with {gap_s:.0f} s between two of them at most" if gap_s >= GAP_S else ""
    return f"reached the consumer from {time_text(delivery.first_at)} to {time_text(delivery.last_at)}{gap}"


def payment_text(receipt: "Receipt", *, is_escrow: bool) -> str:
    """Say what the transaction of a settled receipt did. Without a charge, in escrow, it returned the hold."""
    if receipt.charged > 0:
        return "not paid" if receipt.tx_hash is None else f"paid in {receipt.tx_hash}"
    if receipt.tx_hash is None:
        return "nothing to pay"
    return f"nothing to pay, {'hold returned' if is_escrow else 'recorded'} in {receipt.tx_hash}"
