"""The `sightline admin` commands: call /internal/admin of a running server."""

import json
import re
import sys
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import urlencode

import typer

from sightline.cli.options import ConfigFile, DataDir, settings_of
from sightline_client.commands.options import USDC, AsJson, NumberCommand, choice_option, id_argument, usdc_argument
from sightline_client.commands.sessions import ListedState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rich.table import Table

    from sightline.config import Settings

app = typer.Typer(
    no_args_is_help=True,
    help="Administer a running server: sessions, workspaces, refunds, audit log. Every act is recorded.",
)

Operator = Annotated[
    str,
    typer.Option(
        "--as", envvar="SIGHTLINE_OPERATOR", help="Your name; the audit log has it beside the account of your process."
    ),
]
Reason = Annotated[str, typer.Option(help="Why; recorded in the audit log.")]
_ENTRY = ("id", "kind", "blockNumber", "blockAt", "txHash", "logIndex", "sessionId", "reverses", "recordedAt")
_LINE = ("account", "currency", "amount")
_NO_LINE = dict.fromkeys(_LINE, "")
WorkspaceName = Annotated[str, typer.Argument(metavar="WORKSPACE", help="Id or slug of the workspace.")]
KeyId = Annotated[str, id_argument("a key", "Id of the key, as `sightline admin keys` or `find-key` shows it.")]
SessionId = Annotated[str, id_argument("a session", "Id of a session, as `sightline admin sessions` lists it.")]
SLUG: Final = re.compile(r"[a-z0-9-]{1,32}", re.ASCII)
UUID_TEXT: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII | re.IGNORECASE)
Limit = Annotated[int, typer.Option(min=1, max=1000)]


def _ask(
    settings: "Settings", method: str, path: str, body: dict[str, str] | None = None, *, as_json: bool = False
) -> dict[str, Any]:
    """Call the server.

    Raises:
        typer.Exit: The server does not answer or refuses.
    """
    from sightline.bootstrap.maintenance.error_lines import print_error
    from sightline.cli.operations import NotRunningError, ask

    try:
        return ask(settings, method, f"/internal/admin/{path}", body)
    except NotRunningError as error:
        print_error(str(error), code=error.code or type(error).__name__, as_json=as_json)
        raise typer.Exit(1) from None


def _print(answer: dict[str, Any]) -> None:
    """Print an answer as JSON: one line per item of a list."""
    if "items" in answer:
        for item in answer["items"]:
            typer.echo(json.dumps(item))
    else:
        typer.echo(json.dumps(answer, indent=2))


def _print_list(
    answer: dict[str, Any], table_of_items: "Callable[[list[dict[str, Any]]], Table]", none: str, as_json: bool
) -> None:
    """Print a list as JSON lines or as a table; `none` is said of an empty one."""
    from sightline.cli.tables import print_table

    if as_json:
        _print(answer)
    elif answer["items"]:
        print_table(table_of_items(answer["items"]))
    else:
        typer.echo(none)


def _print_one(answer: dict[str, Any], lines_of: "Callable[[dict[str, Any]], Iterable[str]]", as_json: bool) -> None:
    """Print an answer that is no list, as JSON or as text."""
    if as_json:
        _print(answer)
    else:
        for line in lines_of(answer):
            typer.echo(line)


def _act(
    settings: "Settings", path: str, operator: str, reason: str, *, as_json: bool = False, **more: str
) -> dict[str, Any]:
    return _ask(settings, "POST", path, {"operator": operator, "reason": reason, **more}, as_json=as_json)


def _workspace_id(settings: "Settings", text: str, *, as_json: bool) -> str:
    """The id of a workspace that is given by its id or its slug.

    Raises:
        typer.BadParameter: It is neither.
    """
    if UUID_TEXT.fullmatch(text):
        return text.lower()
    slug = text.lower()
    if SLUG.fullmatch(slug):
        found = _ask(settings, "GET", _query("workspaces", slug=slug, limit=1), as_json=as_json)["items"]
        if found and found[0]["slug"] == slug:  # a slug is in front of those that begin with it
            return str(found[0]["id"])
    from sightline.system.logs import redact_text

    raise typer.BadParameter(
        f"{redact_text(text)[:80]!r} is neither the id nor the slug of a workspace. "
        "`sightline admin workspaces` lists them."
    )


def _query(path: str, **values: object) -> str:
    return f"{path}?{urlencode({name: value for name, value in values.items() if value is not None})}"


@app.command()
def token(data_dir: DataDir = None, config: ConfigFile = None) -> None:
    """Print the bearer token of the internal listener, for curl and the operations page."""
    from sightline.cli.operations import STARTED_OTHERWISE, NotRunningError, ask, internal_token, not_readable

    settings = settings_of(config, data_dir=data_dir)
    found = internal_token(settings)
    if found is None:
        typer.echo(not_readable(settings.secrets_path), err=True)
        raise typer.Exit(1)
    try:
        ask(settings, "GET", "/internal/nodes")
    except NotRunningError as error:  # a token can be read before the server runs
        if str(error) == STARTED_OTHERWISE:
            typer.echo(STARTED_OTHERWISE, err=True)
            raise typer.Exit(1) from error
    typer.echo(found)


@app.command()
def sessions(
    state: Annotated[ListedState | None, choice_option(ListedState, "Only this state.")] = None,
    workspace: Annotated[str | None, typer.Option(help="Id or slug of the consumer or operator workspace.")] = None,
    limit: Limit = 100,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: ConfigFile = None,
) -> None:
    """List sessions of all workspaces, newest first. The charge of one that is not over is its cost so far."""
    from sightline.cli.admin_text import sessions_table

    settings = settings_of(config, as_json=as_json, data_dir=data_dir)
    workspace_id = None if workspace is None else _workspace_id(settings, workspace, as_json=as_json)
    path = _query("sessions", state=state, workspaceId=workspace_id, limit=limit)
    _print_list(_ask(settings, "GET", path, as_json=as_json), sessions_table, "There are no such sessions.", as_json)


@app.command()
def session(
    session_id: SessionId, as_json: AsJson = False, data_dir: DataDir = None, config: ConfigFile = None
) -> None:
    """Show what a dispute is judged by: request, messages, pauses, extensions, end, payment, notes, refunds."""
    from sightline.cli.admin_text import session_lines

    settings = settings_of(config, as_json=as_json, data_dir=data_dir)
    found = _ask(settings, "GET", f"sessions/{session_id}", as_json=as_json)
    _print_one(found, session_lines, as_json)


@app.command()
def end(
    session_id: SessionId,
    operator: Operator,
    reason: Reason,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: ConfigFile = None,
) -> None:
    """End a session now. A LIVE one is charged up to this instant; an earlier one is cancelled."""
    from sightline.cli.admin_text import ended_lines

    settings = settings_of(config, as_json=as_json, data_dir=data_dir)
    _print_one(_act(settings, f"sessions/{session_id}/end", operator, reason, as_json=as_json), ended_lines, as_json)


@app.command()
def note(
    session_id: SessionId,
    text: str,
    operator: Operator,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: ConfigFile = None,
) -> None:
    """Write a note on a session, for example about a dispute."""
    settings = settings_of(config, as_json=as_json, data_dir=data_dir)
    written = _act(settings, f"sessions/{session_id}/notes", operator, text, as_json=as_json)
    _print_one(written, lambda _: ("The note is written.",), as_json)


@app.command(cls=NumberCommand)
def refund(
    session_id: SessionId,
    amount: Annotated[USDC, usdc_argument("Amount in USDC, such as 0.04.", is_positive=True)],
    operator: Operator,
    reason: Reason,
    key: Annotated[
        str,
        typer.Option(
            help="Name of this refund within the session. The same name again pays nothing more, so that a command "
            "can be repeated; for a further refund of the session give another one, such as 2."
        ),
    ] = "1",
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: ConfigFile = None,
) -> None:
    """Pay a part of a session's charge back to its payer, by a transfer on the chain.

    A repeat pays nothing more. For a further refund of the same session give another --key.
    """
    from sightline.cli.admin_text import refund_lines

    settings, path = settings_of(config, as_json=as_json, data_dir=data_dir), f"sessions/{session_id}/refund"
    before = _ask(settings, "GET", f"sessions/{session_id}", as_json=as_json)["refunds"]
    paid = _act(settings, path, operator, reason, as_json=as_json, amountMicroUsdc=str(amount), key=key)
    is_repeat = any(each["key"] == key for each in before)
    _print_one(paid, lambda refund: refund_lines(refund, is_repeat=is_repeat), as_json)


@app.command()
def workspaces(
    slug: Annotated[str | None, typer.Option(help="Beginning of the slug.")] = None,
    limit: Limit = 100,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: ConfigFile = None,
) -> None:
    """List workspaces by slug, with when a device of each was last seen and the reason of a suspension."""
    from sightline.cli.admin_text import workspaces_table

    settings = settings_of(config, as_json=as_json, data_dir=data_dir)
    found = _ask(settings, "GET", _query("workspaces", slug=slug, limit=limit), as_json=as_json)
    _print_list(found, workspaces_table, "There are no such workspaces.", as_json)


@app.command()
def suspend(
    workspace: WorkspaceName,
    operator: Operator,
    reason: Reason,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: ConfigFile = None,
) -> None:
    """Refuse every call of a workspace, end its unfinished sessions, and take an operator OFFLINE.

    A repeat changes nothing but that it ends what is unfinished: the first reason stays.
    """
    from sightline.cli.admin_text import suspended_lines

    settings = settings_of(config, as_json=as_json, data_dir=data_dir)
    workspace_id = _workspace_id(settings, workspace, as_json=as_json)
    done = _act(settings, f"workspaces/{workspace_id}/suspend", operator, reason, as_json=as_json)
    _print_one(done, lambda answer: suspended_lines(workspace, answer), as_json)


@app.command()
def unsuspend(
    workspace: WorkspaceName,
    operator: Operator,
    reason: Reason,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: ConfigFile = None,
) -> None:
    """Accept calls of a workspace again."""
    from sightline.cli.admin_text import unsuspended_lines

    settings = settings_of(config, as_json=as_json, data_dir=data_dir)
    workspace_id = _workspace_id(settings, workspace, as_json=as_json)
    done = _act(settings, f"workspaces/{workspace_id}/unsuspend", operator, reason, as_json=as_json)
    _print_one(done, lambda answer: unsuspended_lines(workspace, answer), as_json)


@app.command()
def keys(
    workspace: WorkspaceName,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: ConfigFile = None,
) -> None:
    """List the API keys of a workspace, newest first, revoked ones too."""
    from sightline.cli.admin_text import keys_table

    settings = settings_of(config, as_json=as_json, data_dir=data_dir)
    workspace_id = _workspace_id(settings, workspace, as_json=as_json)
    found = _ask(settings, "GET", f"workspaces/{workspace_id}/keys", as_json=as_json)
    _print_list(found, keys_table, "The workspace has no keys.", as_json)


@app.command("find-key")
def find_key(as_json: AsJson = False, data_dir: DataDir = None, config: ConfigFile = None) -> None:
    """Name the workspace and the id of a leaked API key, which is read from standard input."""
    from sightline.cli.admin_text import found_lines

    settings = settings_of(config, as_json=as_json, data_dir=data_dir)
    terminal = sys.stdin.isatty()
    key = typer.prompt("Key", hide_input=True) if terminal else sys.stdin.readline()
    found = _ask(settings, "POST", "keys/find", {"key": key.strip()}, as_json=as_json)
    _print_one(found, found_lines, as_json)


@app.command("revoke-key")
def revoke_key(
    workspace: WorkspaceName,
    key: KeyId,
    operator: Operator,
    reason: Reason,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: ConfigFile = None,
) -> None:
    """Revoke one API key of a workspace. It works for 60 more seconds, an OAuth grant for 5.

    `suspend` refuses every call of the workspace at once. `find-key` names the owner of a leaked key.
    """
    from sightline.cli.admin_text import revoked_lines

    settings = settings_of(config, as_json=as_json, data_dir=data_dir)
    workspace_id = _workspace_id(settings, workspace, as_json=as_json)
    done = _act(settings, f"workspaces/{workspace_id}/keys/{key}/revoke", operator, reason, as_json=as_json)
    _print_one(done, lambda answer: revoked_lines(workspace, answer), as_json)


@app.command()
def audit(
    after: Annotated[int, typer.Option(min=0, help="Print entries with a higher id only.")] = 0,
    target: Annotated[str | None, typer.Option(help="For example `session UUID`.")] = None,
    data_dir: DataDir = None,
    config: ConfigFile = None,
) -> None:
    """Print the audit log as JSON lines, oldest first."""
    settings = settings_of(config, data_dir=data_dir)
    while True:
        last = after
        found = _ask(settings, "GET", _query("audit", after=after, target=target))["items"]
        for entry in found:
            typer.echo(json.dumps(entry))
            after = entry["id"]
        if after == last:
            return


@app.command()
def journal(
    after: Annotated[int, typer.Option(min=0, help="Print entries with a higher id only.")] = 0,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV with a row for each line of an entry.")] = False,
    data_dir: DataDir = None,
    config: ConfigFile = None,
) -> None:
    """Print the journal of the books as JSON lines or CSV, oldest first."""
    import csv
    import sys

    settings = settings_of(config, data_dir=data_dir)
    rows = csv.writer(sys.stdout)
    if as_csv:
        rows.writerow((*_ENTRY, *_LINE))
    while found := _ask(settings, "GET", _query("journal", after=after))["items"]:
        after = found[-1]["id"]
        for entry in found:
            if as_csv:
                place = [entry[name] for name in _ENTRY]
                rows.writerows((*place, *(line[name] for name in _LINE)) for line in entry["lines"] or [_NO_LINE])
            else:
                typer.echo(json.dumps(entry))
