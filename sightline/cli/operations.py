"""Operator commands that call the internal listener of a running server."""

import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import httpx
from rich.table import Table

from sightline.bootstrap.maintenance.error_lines import print_error
from sightline.cli.admin_text import usdc
from sightline.cli.tables import open_console, print_table, table_of
from sightline.config import Settings
from sightline.config.shell_lines import shell_line
from sightline.system.secrets import stored_secrets
from sightline.system.server_address_file import FILE_NAME as ADDRESSES_FILE
from sightline.system.server_address_file import read_server_addresses
from sightline_client import InvalidIdError
from sightline_client.wire import segment

TIMEOUT_S = 30.0
RUN_SHOWN = 8
"""So many characters of a server's incarnation tell it from the others; `--json` shows all."""
RIGHT = frozenset({"lease renewed", "shards", "loop delay", "clock"})
NOT_PARKED = "NOT_FOUND"
UNKNOWN_PAYMENTS = "/internal/admin/unknown-payments"
RECONCILIATION = "/internal/admin/reconciliation"
RECONCILIATION_TIMEOUT_S = 1_800.0
"""The whole history of the contract is read again."""


class NotRunningError(Exception):
    """No server is running on the data directory, or it refused the call."""

    def __init__(self, message: str, *, code: str = "") -> None:
        super().__init__(message)
        self.code = code
        """Code of the server's refusal; empty if no server answered."""


def ask(
    settings: Settings,
    method: str,
    path: str,
    body: Mapping[str, object] | None = None,
    *,
    timeout_s: float = TIMEOUT_S,
) -> dict[str, Any]:
    """Call the internal listener of the server on a data directory; returns the data of the answer.

    Raises:
        NotRunningError: No server answers, or it refuses the call.
    """
    return _ask_at(_local_url(settings), settings, method, path, body, timeout_s=timeout_s)


STARTED_OTHERWISE: Final = (
    "The server was started with another SIGHTLINE_INTERNAL_TOKEN or SIGHTLINE_SECRETS_FILE than is set here. Set the "
    "same ones: of a service they are in its unit, or in the file that EnvironmentFile= names."
)


def not_readable(path: Path) -> str:
    """Say that a file of the server cannot be read by this account."""
    return f"{path} cannot be read. Run this as the account of the server."


def _local_url(settings: Settings) -> str:
    try:
        where = read_server_addresses(settings.data_dir)
    except PermissionError:
        raise NotRunningError(not_readable(settings.data_dir / ADDRESSES_FILE)) from None
    if where is None:
        raise NotRunningError(
            f"No server was ever ready on {settings.data_dir}. Start one with `{shell_line(settings, 'serve')}`, or "
            "name its directory with --data-dir."
        )
    return where.internal_url


def internal_token(settings: Settings) -> str | None:
    """The token of the internal listener: of the setting, else of the server's secrets, which its account can read."""
    if settings.internal_token is not None:
        return settings.internal_token.get_secret_value()
    secrets = stored_secrets(settings.secrets_path)
    return None if secrets is None else secrets.internal_token


def _ask_at(
    url: str,
    settings: Settings,
    method: str,
    path: str,
    body: Mapping[str, object] | None = None,
    *,
    timeout_s: float = TIMEOUT_S,
) -> dict[str, Any]:
    token = internal_token(settings)
    if not url:
        raise NotRunningError("It has not reported its address yet, or its version does not.")
    try:
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        answer = httpx.request(method, url + path, headers=headers, json=body, timeout=timeout_s)
    except httpx.TransportError as error:
        raise NotRunningError(
            f"No server answers at {url}. Start it with `{shell_line(settings, 'serve')}`, or name another directory "
            f"than {settings.data_dir} with --data-dir."
        ) from error
    answered: dict[str, Any] = answer.json()
    if answered.get("detail") == "internal:token":
        is_readable = token is not None or not _exists(settings.secrets_path)
        message = STARTED_OTHERWISE if is_readable else not_readable(settings.secrets_path)
        raise NotRunningError(message, code=answered["code"])
    if answer.status_code != httpx.codes.OK:
        raise NotRunningError(
            f"{answered['code']}: {answered.get('hint') or answered['message']}", code=answered["code"]
        )
    data: dict[str, Any] = answered["data"]
    return data


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except PermissionError:  # of a directory on the way
        return True


def _names_of(items: Sequence[Mapping[str, Any]]) -> list[str]:
    """Name servers so that each name is unique: two servers of one machine get the begin of their incarnation."""
    named = Counter(item["name"] for item in items)
    return [
        item["name"] if named[item["name"]] == 1 else f"{item['name']} ({item['incarnation'][:RUN_SHOWN]})"
        for item in items
    ]


def _servers_of(settings: Settings, node: str | None) -> dict[str, str]:
    """List the servers of the service that have a valid lease: the URL of the internal listener of each, by its name.

    Args:
        node: Name of the only server that is wanted; None: all.

    Raises:
        NotRunningError: No server answers, or none is called `node`.
    """
    items = ask(settings, "GET", "/internal/nodes")["items"]
    servers = {name: item["url"] for name, item in zip(_names_of(items), items, strict=True) if item["valid"]}
    if len(servers) == 1:
        servers = dict.fromkeys(servers, _local_url(settings))
    wanted = {name: url for name, url in servers.items() if node in (None, name)}
    if not wanted:
        raise NotRunningError(f"No server is called {node}. The servers are: {', '.join(servers)}.")
    return wanted


def _fail(error: NotRunningError | InvalidIdError, *, as_json: bool) -> int:
    code = error.code if isinstance(error, NotRunningError) and error.code else type(error).__name__
    print_error(str(error), code=code, as_json=as_json)
    return 2 if isinstance(error, InvalidIdError) else 1


def print_json(value: object) -> None:
    """Print a value as one line of JSON."""
    sys.stdout.write(json.dumps(value) + "\n")


def print_settlements(settings: Settings, *, as_json: bool) -> int:
    """Print the settlements that are not confirmed, with the reason. Returns the exit code."""
    try:
        found = ask(settings, "GET", "/internal/settlements")["items"]
    except NotRunningError as error:
        return _fail(error, as_json=as_json)
    if as_json:
        for item in found:
            print_json(item)
        return 0
    table = table_of("session", "state", "USDC", "tries", "next try", "transaction", "reason")
    for item in found:
        table.add_row(
            item["sessionId"],
            item["state"],
            usdc(item["amountMicroUsdc"]),
            str(item["tries"]),
            item["retryAt"] or "",
            item["txHash"] or "",
            item["reason"] or "",
        )
    if found:
        print_table(table)
    else:
        open_console().print("every settlement is confirmed or written off")
    return 0


def write_off_settlement(settings: Settings, session_id: str, reason: str) -> int:
    """Write a settlement off. Returns the exit code."""
    try:
        path = f"/internal/settlements/{segment(session_id)}/write-off"
        ask(settings, "POST", f"{path}?{urlencode({'reason': reason})}")
    except (NotRunningError, InvalidIdError) as error:
        return _fail(error, as_json=False)
    open_console().print(f"the settlement of {session_id} is written off, and its hold is released")
    return 0


def reconcile_payments(
    settings: Settings, *, operator: str | None, reason: str | None, confirm: Callable[[str], bool], as_json: bool
) -> int:
    """Print unknown payments and differences between the books and the chain; adopt the payments if a reason is given.

    Args:
        confirm: Asks the person who acts; False: nothing is adopted.

    Returns:
        The exit code; 1 while there are unknown payments, or differences that this call has looked for.
    """
    try:
        found = ask(settings, "GET", UNKNOWN_PAYMENTS)
        if reason is None:
            found["books"] = ask(settings, "POST", RECONCILIATION, timeout_s=RECONCILIATION_TIMEOUT_S)
        if as_json:
            print_json(found)
        else:
            _print_payments(found)
        items, count = found["items"], found["unknown"]["payments"]
        if reason is None:
            return 1 if count or found["books"]["differences"] else 0
        if not items:
            return 1 if count else 0
        if count > len(items):  # the last block that is listed may have more of them
            items = [item for item in items if item["blockNumber"] < items[-1]["blockNumber"]]
        through, total = items[-1]["blockNumber"], sum(map(_paid_micro, items))
        question = (
            f"Adopt {len(items)} payments of {usdc(total)} USDC, through block {through}, into the journal for good?"
        )
        if not confirm(question):
            print_error("Nothing was adopted.", code="NOT_CONFIRMED", as_json=as_json)
            return 1
        body = {"operator": operator, "reason": reason, "throughBlock": through, "count": len(items)}
        done = ask(settings, "POST", f"{UNKNOWN_PAYMENTS}/adopt", body)
    except NotRunningError as error:
        return _fail(error, as_json=as_json)
    if as_json:
        print_json(done)
    else:
        left = done["unknown"]["payments"]
        ends = "New sessions begin again." if not left else f"{left} payments are left: run it again."
        open_console().print(f"adopted: {done['adopted']['payments']} payments. {ends}")
    return 1 if done["unknown"]["payments"] else 0


def _paid_micro(payment: Mapping[str, Any]) -> int:
    """What a payer was charged, in micro-USDC: the operator's part and the fee."""
    return int(payment["toAmount"]) + int(payment["feeAmount"])


def _print_payments(found: dict[str, Any]) -> None:
    console = open_console()
    if found["items"]:
        table = table_of("block", "session (keccak256 of its id)", "from", "to", "USDC", "transaction")
        for item in found["items"]:
            paid = usdc(_paid_micro(item))
            table.add_row(
                str(item["blockNumber"]), item["sessionIdHash"], item["from"], item["to"], paid, item["txHash"]
            )
        print_table(table)
    for name, meaning in (
        ("settled", "in the database and on the chain"),
        ("adopted", "adopted from the chain"),
        ("unknown", "on the chain and not in the database"),
    ):
        console.print(f"{meaning}: {found[name]['payments']} payments, {usdc(found[name]['amountMicroUsdc'])} USDC")
    if "books" in found:
        _print_differences(found["books"])


def _print_differences(books: dict[str, Any]) -> None:
    for each in books["items"]:
        sys.stdout.write(
            f"{each['kind']}: {each['subject']}: chain: {each['chain']}; books: {each['books']}. {each['advice']}.\n"
        )
    if books["items"]:
        sys.stdout.write("Amounts of accounts are in micro-USDC, those of gas in wei, as in the journal.\n")
    sys.stdout.write(
        f"books: {books['events']} events through block {books['throughBlock']} compared with the chain, "
        f"{books['differences']} differences\n"
    )


def print_nodes(settings: Settings, *, as_json: bool) -> int:
    """Print the servers of the database with their shards and roles, and how each is. Returns the exit code."""
    try:
        found = ask(settings, "GET", "/internal/nodes")
    except NotRunningError as error:
        return _fail(error, as_json=as_json)
    if as_json:
        print_json(found)
        return 0
    items = found["items"]
    titles = ["server", "run", "version", "lease renewed", "shards", "roles", "loop delay", "internal listener"]
    table = table_of(*titles, *(["clock", "NATS"] if len(items) > 1 else []), right=RIGHT)
    for name, item in zip(_names_of(items), items, strict=True):
        is_reported = item["reportedMsAgo"] is not None
        row = [
            name,
            item["incarnation"][:RUN_SHOWN],
            item["version"],
            f"{item['renewedMsAgo'] / 1_000:.1f} s ago" + ("" if item["valid"] else ", ENDED"),
            str(item["shards"]),
            ", ".join(role.lower() for role in item["roles"]),
            f"{item['loopDelayMs']} ms" if is_reported else "",
            item["url"].removeprefix("http://"),
        ]
        if len(items) > 1:
            row += [f"{item['clockOffsetMs']:+d} ms", "connected" if item["connected"] else "NOT CONNECTED"]
        table.add_row(*row)
    print_table(table)
    if found["unownedShards"]:
        open_console().print(f"{found['unownedShards']} shards and roles have no owner")
    return 0


def print_actors(settings: Settings, *, as_json: bool, node: str | None) -> int:
    """Print the sums of all servers for each kind of actor, and the parked actors.

    Args:
        node: Name of the only server to ask; None: all.

    Returns:
        The exit code; 1 if a server did not answer, so that its actors are missing.
    """
    kinds_of: dict[str, dict[str, Any]] = {}
    try:
        servers = _servers_of(settings, node)
    except NotRunningError as error:
        return _fail(error, as_json=as_json)
    for name, url in servers.items():
        try:
            kinds_of[name] = _ask_at(url, settings, "GET", "/internal/actors")["kinds"]
        except NotRunningError as error:
            sys.stderr.write(f"The actors of {name} are missing. {error}\n")
    if as_json:
        for name, kinds in kinds_of.items():
            print_json({"node": name, "kinds": kinds})
    else:
        print_table(_table_of_actors(kinds_of))
    return 0 if len(kinds_of) == len(servers) else 1


def _table_of_actors(kinds_of: dict[str, dict[str, Any]]) -> Table:
    """Add up the counts of servers; of latencies the worst."""
    table = table_of("kind", "active", "waiting", "p99 wait s", "p99 turn s", "parked")
    for kind in sorted({kind for kinds in kinds_of.values() for kind in kinds}):
        counts = {name: kinds[kind] for name, kinds in kinds_of.items() if kind in kinds}
        table.add_row(
            kind,
            str(sum(each["active"] for each in counts.values())),
            str(sum(each["depth"] for each in counts.values())),
            f"{max(each['wait_p99_s'] for each in counts.values()):.4f}",
            f"{max(each['handle_p99_s'] for each in counts.values()):.4f}",
            "; ".join(
                f"{actor_id} on {name}: {reason}"
                for name, each in counts.items()
                for actor_id, reason in each["parked"].items()
            ),
        )
    return table


def revive_actor(settings: Settings, actor: str, *, node: str | None, as_json: bool = False) -> int:
    """Start a parked actor, KIND/ID, again, on the server where it is parked. Returns the exit code.

    Args:
        node: Name of the only server to ask; None: all.
    """
    refused = NotRunningError(f"{actor} is not parked. `sightline actors` lists the parked ones as KIND/ID.")
    try:
        kind, _, actor_id = actor.partition("/")
        path = f"{segment(kind)}/{segment(actor_id)}"
        for name, url in _servers_of(settings, node).items():
            try:
                _ask_at(url, settings, "POST", f"/internal/actors/{path}/revive")
            except NotRunningError as error:
                refused = refused if error.code == NOT_PARKED else error
            else:
                sys.stdout.write(f"revived {actor} on {name}\n")
                return 0
    except InvalidIdError as error:
        return _fail(error, as_json=as_json)
    except NotRunningError as error:
        refused = error
    return _fail(refused, as_json=as_json)
