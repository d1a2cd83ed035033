"""Operator commands that call the internal listener of a running server."""

import json
import sys
from typing import Any
from urllib.parse import urlencode

import httpx
from rich.console import Console
from rich.table import Table

from sightline.config import Settings
from sightline.system.server_address_file import read_server_addresses

TIMEOUT_S = 30.0
PLAIN_WIDTH = 200
"""Width of the output, in columns, when stdout is not a terminal."""


class NotRunningError(Exception):
    """No server is running on the data directory, or it refused the call."""


def ask(settings: Settings, method: str, path: str, body: dict[str, str] | None = None) -> dict[str, Any]:
    """Call the internal listener of the server on a data directory; returns the data of the answer.

    Raises:
        NotRunningError: No server answers, or it refuses the call.
    """
    data_dir, token = settings.data_dir, settings.internal_token
    where = read_server_addresses(data_dir)
    if where is None:
        raise NotRunningError(
            f"No server was ever ready on {data_dir}. Start one with `sightline serve`, or name its directory with "
            "--data-dir."
        )
    try:
        headers = {} if token is None else {"authorization": f"Bearer {token.get_secret_value()}"}
        answer = httpx.request(method, where.internal_url + path, headers=headers, json=body, timeout=TIMEOUT_S)
    except httpx.TransportError as error:
        raise NotRunningError(
            f"The server of {data_dir} does not answer at {where.internal_url}. Start it with `sightline serve`, or "
            "name another directory with --data-dir."
        ) from error
    answered: dict[str, Any] = answer.json()
    if answer.status_code != httpx.codes.OK:
        raise NotRunningError(f"{answered['code']}: {answered['message']}")
    data: dict[str, Any] = answered["data"]
    return data


def _console() -> Console:
    return Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH)


def _fail(error: NotRunningError) -> int:
    sys.stderr.write(f"{error}\n")
    return 1


def print_json(value: object) -> None:
    """Print a value as one line of JSON."""
    sys.stdout.write(json.dumps(value) + "\n")


def print_settlements(settings: Settings, *, as_json: bool) -> int:
    """Print the settlements that are not confirmed, with the reason. Returns the exit code."""
    try:
        found = ask(settings, "GET", "/internal/settlements")["items"]
    except NotRunningError as error:
        return _fail(error)
    if as_json:
        for item in found:
            print_json(item)
        return 0
    table = Table("session", "state", "micro-USDC", "tries", "next try", "transaction", "reason")
    for item in found:
        table.add_row(
            item["sessionId"],
            item["state"],
            item["amountMicroUsdc"],
            str(item["tries"]),
            item["retryAt"] or "",
            item["txHash"] or "",
            item["reason"] or "",
        )
    console = _console()
    if found:
        console.print(table)
    else:
        console.print("every settlement is confirmed")
    return 0


def write_off_settlement(settings: Settings, session_id: str, reason: str) -> int:
    """Write a settlement off. Returns the exit code."""
    try:
        ask(settings, "POST", f"/internal/settlements/{session_id}/write-off?{urlencode({'reason': reason})}")
    except NotRunningError as error:
        return _fail(error)
    _console().print(f"the settlement of {session_id} is written off, and its hold is released")
    return 0


def print_nodes(settings: Settings, *, as_json: bool) -> int:
    """Print the servers of the database with their shards and roles. Returns the exit code."""
    try:
        found = ask(settings, "GET", "/internal/nodes")
    except NotRunningError as error:
        return _fail(error)
    if as_json:
        print_json(found)
        return 0
    table = Table("server", "host", "lease", "renewed", "shards", "roles")
    for item in found["items"]:
        table.add_row(
            item["incarnation"],
            item["host"],
            "valid" if item["valid"] else "ended",
            f"{item['renewedMsAgo'] / 1_000:.1f} s ago",
            str(item["shards"]),
            ", ".join(role.lower() for role in item["roles"]),
        )
    console = _console()
    console.print(table)
    if found["unownedShards"]:
        console.print(f"{found['unownedShards']} shards and roles have no owner")
    return 0


def print_actors(settings: Settings, *, as_json: bool) -> int:
    """Print counts per kind of actor, and the parked actors. Returns the exit code."""
    try:
        kinds = ask(settings, "GET", "/internal/actors")["kinds"]
    except NotRunningError as error:
        return _fail(error)
    if as_json:
        print_json(kinds)
        return 0
    table = Table("kind", "active", "waiting", "p99 wait s", "p99 turn s", "parked")
    for kind, counts in kinds.items():
        parked = "; ".join(f"{actor_id}: {reason}" for actor_id, reason in counts["parked"].items())
        table.add_row(
            kind,
            str(counts["active"]),
            str(counts["depth"]),
            f"{counts['wait_p99_s']:.4f}",
            f"{counts['handle_p99_s']:.4f}",
            parked,
        )
    _console().print(table)
    return 0


def revive_actor(settings: Settings, name: str) -> int:
    """Start a parked actor, KIND/ID, again. Returns the exit code."""
    try:
        ask(settings, "POST", f"/internal/actors/{name}/revive")
    except NotRunningError as error:
        sys.stderr.write(f"{str(error).rstrip('.')}. `sightline actors` lists the parked ones as KIND/ID.\n")
        return 1
    sys.stdout.write(f"revived {name}\n")
    return 0
