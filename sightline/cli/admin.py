"""The `sightline admin` commands: call /internal/admin of a running server."""

import json
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlencode

import typer

from sightline.cli.options import ConfigFile, DataDir, settings_of

if TYPE_CHECKING:
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
Limit = Annotated[int, typer.Option(min=1, max=1000)]


def _ask(settings: "Settings", method: str, path: str, body: dict[str, str] | None = None) -> dict[str, Any]:
    """Call the server.

    Raises:
        typer.Exit: The server does not answer or refuses.
    """
    from sightline.cli.operations import NotRunningError, ask

    try:
        return ask(settings, method, f"/internal/admin/{path}", body)
    except NotRunningError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None


def _print(answer: dict[str, Any]) -> None:
    """Print an answer as JSON: one line per item of a list."""
    if "items" in answer:
        for item in answer["items"]:
            typer.echo(json.dumps(item))
    else:
        typer.echo(json.dumps(answer, indent=2))


def _act(settings: "Settings", path: str, operator: str, reason: str, **more: str) -> None:
    body = {"operator": operator, "reason": reason, **more}
    _print(_ask(settings, "POST", path, body))


def _id(text: str) -> str:
    """An id as one segment of a path.

    Raises:
        typer.BadParameter: It is none.
    """
    from sightline_client import InvalidIdError
    from sightline_client.wire import segment

    try:
        return segment(text)
    except InvalidIdError as error:
        raise typer.BadParameter(str(error)) from None


def _query(path: str, **values: object) -> str:
    return f"{path}?{urlencode({name: value for name, value in values.items() if value is not None})}"


@app.command()
def token(data_dir: DataDir = None, config: ConfigFile = None) -> None:
    """Print the bearer token of the internal listener, for curl and the operations page."""
    from sightline.cli.operations import internal_token

    settings = settings_of(config, data_dir=data_dir)
    found = internal_token(settings)
    if found is None:
        typer.echo(f"{settings.secrets_path} cannot be read. Run this as the account of the server.", err=True)
        raise typer.Exit(1)
    typer.echo(found)


@app.command()
def sessions(
    state: Annotated[str | None, typer.Option(help="REQUESTED, ASSIGNED, LIVE, ENDED, CANCELLED or EXPIRED.")] = None,
    workspace: Annotated[str | None, typer.Option(help="Id of the consumer or operator workspace.")] = None,
    limit: Limit = 100,
    data_dir: DataDir = None,
    config: ConfigFile = None,
) -> None:
    """List sessions of all workspaces, newest first, one JSON object a line."""
    settings = settings_of(config, data_dir=data_dir)
    _print(_ask(settings, "GET", _query("sessions", state=state, workspaceId=workspace, limit=limit)))


@app.command()
def session(session_id: str, data_dir: DataDir = None, config: ConfigFile = None) -> None:
    """Show a session with its notes and refunds."""
    settings = settings_of(config, data_dir=data_dir)
    _print(_ask(settings, "GET", f"sessions/{_id(session_id)}"))


@app.command()
def end(
    session_id: str, operator: Operator, reason: Reason, data_dir: DataDir = None, config: ConfigFile = None
) -> None:
    """End a session now. A LIVE one is charged up to this instant; an earlier one is cancelled."""
    _act(settings_of(config, data_dir=data_dir), f"sessions/{_id(session_id)}/end", operator, reason)


@app.command()
def note(session_id: str, text: str, operator: Operator, data_dir: DataDir = None, config: ConfigFile = None) -> None:
    """Write a note on a session, for example about a dispute."""
    _act(settings_of(config, data_dir=data_dir), f"sessions/{_id(session_id)}/notes", operator, text)


@app.command()
def refund(
    session_id: str,
    micro_usdc: Annotated[int, typer.Argument(min=1)],
    operator: Operator,
    reason: Reason,
    key: Annotated[str, typer.Option(help="Name of the refund; a repeat with the same name pays nothing more.")] = "1",
    data_dir: DataDir = None,
    config: ConfigFile = None,
) -> None:
    """Pay a part of a session's charge back to its payer, by a transfer on the chain."""
    _act(
        settings_of(config, data_dir=data_dir),
        f"sessions/{_id(session_id)}/refund",
        operator,
        reason,
        amountMicroUsdc=str(micro_usdc),
        key=key,
    )


@app.command()
def workspaces(
    slug: Annotated[str | None, typer.Option(help="Beginning of the slug.")] = None,
    limit: Limit = 100,
    data_dir: DataDir = None,
    config: ConfigFile = None,
) -> None:
    """List workspaces by slug, one JSON object a line."""
    settings = settings_of(config, data_dir=data_dir)
    _print(_ask(settings, "GET", _query("workspaces", slug=slug, limit=limit)))


@app.command()
def suspend(
    workspace_id: str, operator: Operator, reason: Reason, data_dir: DataDir = None, config: ConfigFile = None
) -> None:
    """Refuse every call of a workspace, end its unfinished sessions, and take an operator OFFLINE."""
    _act(settings_of(config, data_dir=data_dir), f"workspaces/{_id(workspace_id)}/suspend", operator, reason)


@app.command()
def unsuspend(
    workspace_id: str, operator: Operator, reason: Reason, data_dir: DataDir = None, config: ConfigFile = None
) -> None:
    """Accept calls of a workspace again."""
    _act(settings_of(config, data_dir=data_dir), f"workspaces/{_id(workspace_id)}/unsuspend", operator, reason)


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
