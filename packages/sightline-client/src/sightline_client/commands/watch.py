"""Commands of a consumer: signup, login, keys, invitations, statement, watch, frames, clip, listen."""

import base64
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext, suppress
from datetime import UTC, datetime
from enum import StrEnum, unique
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from sightline_client.commands.access import (
    KEY_SCOPES,
    SCOPES,
    client,
    configured_wallet,
    fitting_command_named,
    has_transaction,
    named_by,
    one_line_errors,
    own_wallet,
    own_workspace_id,
    paying_wallet,
    this_command_with,
)
from sightline_client.commands.client_settings import load_client_settings
from sightline_client.commands.funds import warn_of_an_empty_wallet
from sightline_client.commands.options import (
    AsJson,
    Instructions,
    Lat,
    Lng,
    MaxCharge,
    PlaceCommand,
    SessionId,
    Url,
    choice_option,
    http_url,
    id_argument,
    usdc_option,
)
from sightline_client.commands.printing import (
    next_step_text,
    nothing_requested,
    pause_text,
    payment_text,
    print_value,
    print_warning,
    say_end,
    time_text,
)
from sightline_client.runtime import SECONDS_MAX, unix_s

# Each command imports the client when it runs, so that `--help` is fast.
if TYPE_CHECKING:
    from sightline_client import ApiError, Event, Frame, Receipt, Sightline, View
    from sightline_client.models import ApiKey, ChainConfig, KeyIdentity, MintedKey, MonthStatement, Session, Workspace
    from sightline_client.wallet import LocalWallet

PANEL: Final = "Watch"
"""Heading of `sightline --help`."""

RESUMES_S: Final = 900.0
"""How long `listen` tries to connect again: longer than a restart of a server takes."""

app = typer.Typer()
keys_app = typer.Typer(no_args_is_help=True, help="Manage the API keys of a workspace. Needs SIGHTLINE_WALLET_KEY.")

invitations_app = typer.Typer(
    no_args_is_help=True, help="Answer invitations to workspaces. Needs SIGHTLINE_WALLET_KEY."
)
app.add_typer(keys_app, name="keys", rich_help_panel=PANEL)
app.add_typer(invitations_app, name="invitations", rich_help_panel=PANEL)


@unique
class Role(StrEnum):
    """What a workspace does."""

    CONSUMER = "CONSUMER"
    SUPPLIER = "SUPPLIER"


_InvitationId = Annotated[str, id_argument("an invitation")]
Slug = Annotated[
    str | None,
    typer.Option(
        "--workspace", help="Slug of the workspace; default: the wallet's only one, or that of SIGHTLINE_API_KEY."
    ),
]


def _statement_lines(found: "MonthStatement") -> Iterator[str]:
    for paid in found.consumer.items:
        yield f"{paid.settled_at:%F}  {paid.session_id}  charged {paid.charged_micro_usdc.usdc}"
    for filmed in found.operator.items:
        yield f"{filmed.settled_at:%F}  {filmed.session_id}  earned {filmed.earned_micro_usdc.usdc}"
    yield f"{found.month}, {'closed' if found.is_closed else 'open'}, in USDC of a {found.environment} network"
    charged, earned, invoice = found.consumer.total, found.operator.total, found.consumer.invoice
    yield f"charged {charged.charged_micro_usdc.usdc} for {charged.sessions} sessions"
    yield f"returned {charged.returned_micro_usdc.usdc}, refunded {charged.refunded_micro_usdc.usdc}"
    yield f"earned {earned.earned_micro_usdc.usdc} with {earned.sessions} sessions"
    credited, waiting = earned.credited_micro_usdc.usdc, earned.waiting_micro_usdc.usdc
    yield f"paid {earned.paid_micro_usdc.usdc}, credited {credited}, waiting {waiting}"
    if invoice is not None:
        yield f"invoice {invoice.number}: {invoice.charged_micro_usdc.usdc}"


def _sign_in(sl: "Sightline", slug: str | None) -> str:
    """Sign in and select a workspace; returns its id."""
    all_of_them = sl.auth.sign_in(own_wallet()).workspaces
    own = [each for each in all_of_them if each.slug != f"guest-{each.id.replace('-', '')[:26]}"]  # made by x402
    found = own if slug is None else [each for each in all_of_them if each.slug == slug]
    if slug is None and len(own) > 1:
        key = _identity_of_key(sl.url)
        found = [each for each in own if key is not None and each.id == key.workspace_id]
    if not own and slug is None:
        raise ValueError("The wallet has no workspace. Run `sightline signup` with it.")
    if len(found) != 1:
        names = ", ".join(each.slug for each in all_of_them) or "none"
        raise ValueError(f"The wallet has these workspaces: {names}. Name one with --workspace.")
    sl.auth.select(found[0].id)
    return found[0].id


def _identity_of_key(url: str) -> "KeyIdentity | None":
    """Return what the server knows of the configured API key, if there is one that is valid."""
    from sightline_client import ApiError, Sightline

    key = load_client_settings().api_key
    if not key:
        return None
    with Sightline(url, key) as sl, suppress(ApiError):
        me = sl.me()
        return me if me.kind == "api_key" else None
    return None


@app.command(rich_help_panel=PANEL)
def signup(
    role: Annotated[Role, choice_option(Role, "What the workspace does: buy views, or film.")] = Role.CONSUMER,
    slug: Annotated[str | None, typer.Option(help="Slug of the workspace; default: made from the address.")] = None,
    fund: Annotated[
        int | None, usdc_option("Also send this much test USDC from the faucet of --data-dir and approve it.")
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(help="Data directory of the server, for --fund; default: as `sightline faucet` has it."),
    ] = None,
    api: Url = None,
    as_json: AsJson = False,
) -> None:
    """Create a wallet, a workspace and an API key, and print them. SIGHTLINE_WALLET_KEY names an own wallet."""
    from sightline_client.commands import installed_commands

    with one_line_errors(as_json=as_json), client(api) as sl:
        from sightline_client.errors import ConflictError
        from sightline_client.wallet import LocalWallet

        if fund is not None and not installed_commands():
            raise ValueError("--fund needs the server's package on this machine. Run: pip install sightline-live")
        own = configured_wallet()
        wallet = LocalWallet.create() if own is None else own
        name = slug or f"{role.lower()}-{wallet.address[2:10].lower()}"
        try:
            workspace = sl.workspaces.create(wallet, slug=name, name=name, roles=[role])
        except ConflictError as error:
            if error.detail != "workspace:slug" or all(
                each.slug != name for each in sl.auth.sign_in(wallet).workspaces
            ):
                raise
            raise ValueError(
                f"This wallet has the workspace {name} already. `sightline login --workspace {name}` mints a key for "
                "it; --slug names another workspace."
            ) from error
        sl.auth.sign_in(wallet, workspace_id=workspace.id)
        minted = sl.keys.mint(workspace.id, label="signup", scopes=SCOPES[role])
        said: dict[str, object] = {
            "apiKey": minted.plaintext,
            "workspaceId": workspace.id,
            "slug": workspace.slug,
            "walletAddress": wallet.address,
            "walletKey": wallet.private_key,
        }
        # Before the faucet, which may fail: the key cannot be shown again.
        print_value(said, as_json, _exports(sl.url, minted, workspace, wallet if own is None else None))
        if fund is not None:
            done = _fund(sl, wallet, fund, data_dir)
            if not as_json:
                typer.echo(done, err=True)
        elif role == Role.CONSUMER:
            warn_of_an_empty_wallet(sl, as_json=as_json)


def _exports(url: str, minted: "MintedKey", workspace: "Workspace", created: "LocalWallet | None") -> str:
    pays = "what it films is paid to" if "SUPPLIER" in workspace.roles else "its views are paid by"
    lines = [
        f"# Workspace {workspace.slug} ({workspace.id}); {pays} {workspace.wallet_address}",
        f"export SIGHTLINE_URL={url}",
        f"export SIGHTLINE_API_KEY={minted.plaintext}",
    ]
    if created is not None:
        lines.append(f"export SIGHTLINE_WALLET_KEY={created.private_key}   # keep it: it owns {created.address}")
    return "\n".join(lines)


def _fund(sl: "Sightline", wallet: "LocalWallet", amount: int, data_dir: Path | None) -> str:
    """Send test USDC from the faucet to the wallet, and approve it. Returns what was done."""
    from sightline_client import Chain
    from sightline_client.money import MicroUsdc

    faucet = f"faucet {wallet.address} {MicroUsdc(amount).usdc}"
    command = [sys.executable, "-m", "sightline_client", *faucet.split(), "--json"]
    if data_dir is not None:
        command += ["--data-dir", str(data_dir)]
    env = os.environ | {"SIGHTLINE_URL": sl.url}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)  # noqa: S603  own command
    exist, approve = "The workspace and its key exist, but", f"`sightline approve {MicroUsdc(amount).usdc}`"
    if done.returncode != 0:
        raise ValueError(
            f"{exist} the faucet failed: {_messages_of(done.stderr)} To go on, run `sightline {faucet} --data-dir "
            f"DIRECTORY`, then {approve} with the key and the wallet."
        )
    paid, config = json.loads(done.stdout), sl.config()
    if not has_transaction(config, paid["txHash"]):
        server = "of another server" if paid["url"] is None else f"of another server, {paid['url']}"
        raise ValueError(
            f"{exist} {paid['dataDir']} is the data directory {server}: the wallet got {MicroUsdc(amount).usdc} test "
            f"USDC on that one's chain, and nothing on that of {sl.url}. To go on, run `sightline {faucet} --data-dir "
            f"DIRECTORY` with the data directory of {sl.url}, then {approve} with the key and the wallet."
        )
    Chain(config.rpc_url).approve(wallet, token=config.usdc_address, spender=config.settlement_address, amount=amount)
    return f"The wallet got {MicroUsdc(amount).usdc} test USDC, and lets the service take as much for its sessions."


def _messages_of(lines: str) -> str:
    """Return what a command with --json said on stderr, as text."""
    try:
        said = [json.loads(line) for line in lines.splitlines()]
        return " ".join(str(each.get("message", each.get("warning", ""))) for each in said)
    except ValueError:  # a traceback
        return lines.strip()


@app.command(rich_help_panel=PANEL)
def login(slug: Slug = None, api: Url = None, as_json: AsJson = False) -> None:
    """Sign in with SIGHTLINE_WALLET_KEY, mint an API key and print it."""
    with one_line_errors(as_json=as_json), client(api) as sl:
        workspace = sl.workspaces.get(_sign_in(sl, slug))
        minted = sl.keys.mint(workspace.id, label="login", scopes=_scopes_of(workspace))
    print_value(minted, as_json, _exports(sl.url, minted, workspace, None))


def _scopes_of(workspace: "Workspace") -> list[str]:
    """Return the scopes that a key needs for what the workspace does."""
    return sorted({scope for role in workspace.roles for scope in SCOPES[role]})


@keys_app.command("list")
def list_keys(slug: Slug = None, api: Url = None, as_json: AsJson = False) -> None:
    """List the keys, without their plaintexts, and name that of SIGHTLINE_API_KEY: keys of a workspace begin alike."""
    with one_line_errors(as_json=as_json), client(api) as sl:
        found = sl.keys.list(_sign_in(sl, slug))
        own = None if as_json else _identity_of_key(sl.url)
    if as_json:
        for key in found:
            print_value(key, as_json, "")
        return
    for line in _key_table(found):
        typer.echo(line)
    if own is not None and any(key.key_id == own.key_id for key in found):
        typer.echo(f"That of SIGHTLINE_API_KEY is {own.key_id}.", err=True)


def _key_table(found: "Sequence[ApiKey]") -> Iterator[str]:
    label = max([len("label"), *(len(key.label) for key in found)])
    row = f"{{:36}}  {{:{max([len('begins'), *(len(key.prefix) for key in found)])}}}  {{:7}}  {{:20}}  {{:20}}"
    yield f"{row.format('id', 'begins', 'state', 'created', 'last used')}  {'label':{label}}  scopes, limits"
    for key in found:
        state = "revoked" if key.revoked_at else "valid"
        used = "never" if key.last_used_at is None else time_text(key.last_used_at)
        start = row.format(key.key_id, key.prefix, state, time_text(key.created_at), used)
        yield f"{start}  {key.label:{label}}  {' '.join(key.scopes)}{_limits_text(key)}"


def _limits_text(key: "ApiKey") -> str:
    limits = key.limits
    if limits is None:
        return ""
    amounts = ((limits.per_session_micro_usdc, "a session"), (limits.per_day_micro_usdc, "a day"))
    most = ", ".join(f"{amount.usdc} USDC {of}" for amount, of in amounts if amount is not None)
    return f"  at most {most}" if most else ""


@keys_app.command("mint")
def mint_key(
    label: Annotated[str, typer.Argument(help="Name of the key, as `keys list` shows it.")],
    scope: Annotated[
        list[str] | None,
        typer.Option(
            help=f"May be repeated: {', '.join(KEY_SCOPES)} (the last two allow nothing yet). Default: what the roles "
            "of the workspace need."
        ),
    ] = None,
    per_session: Annotated[int | None, usdc_option("Most that one session of this key may cost.")] = None,
    per_day: Annotated[int | None, usdc_option("Most that the sessions of this key may cost a day.")] = None,
    slug: Slug = None,
    api: Url = None,
    as_json: AsJson = False,
) -> None:
    """Mint a key, and print its plaintext, which cannot be shown again. Its id is printed on stderr."""
    with one_line_errors(as_json=as_json), client(api) as sl:
        from sightline_client.models import ApiKeyLimits

        limits = ApiKeyLimits(per_session_micro_usdc=per_session, per_day_micro_usdc=per_day)
        is_limited = limits != ApiKeyLimits()
        workspace_id = _sign_in(sl, slug)
        scopes = scope or _scopes_of(sl.workspaces.get(workspace_id))
        minted = sl.keys.mint(workspace_id, label=label, scopes=scopes, limits=limits if is_limited else None)
    if not as_json:
        typer.echo(f"Its id is {minted.key_id}; `sightline keys revoke {minted.key_id}` revokes it.", err=True)
    print_value(minted, as_json, minted.plaintext)


@keys_app.command("revoke")
def revoke_key(
    key_id: Annotated[str, id_argument("a key")], slug: Slug = None, api: Url = None, as_json: AsJson = False
) -> None:
    """Revoke a key. It works for 60 more seconds."""
    with one_line_errors(as_json=as_json), client(api) as sl:
        from sightline_client.errors import NotFoundError

        try:
            revoked = sl.keys.revoke(_sign_in(sl, slug), key_id)
        except NotFoundError as error:
            raise ValueError(f"The workspace has no key {key_id}. `sightline keys list` shows its keys.") from error
    until = "is revoked" if revoked.grace_period_end is None else f"works until {time_text(revoked.grace_period_end)}"
    print_value(revoked, as_json, f"{revoked.key_id} {until}")


@invitations_app.command("list")
def list_invitations(api: Url = None, as_json: AsJson = False) -> None:
    """List the open invitations. Names are chosen by the inviter: compare the wallet addresses."""
    with one_line_errors(as_json=as_json), client(api) as sl:
        sl.auth.sign_in(own_wallet())
        found = sl.auth.invitations()
    if not found and not as_json:
        typer.echo("There are no open invitations.")
    for each in found:
        workspace = each.workspace
        text = f"{each.id}  {each.role:6}  {workspace.slug}  paid to {workspace.wallet_address}  by {each.invited_by}"
        print_value(each, as_json, text)


@invitations_app.command("accept")
def accept_invitation(invitation_id: _InvitationId, api: Url = None, as_json: AsJson = False) -> None:
    """Become a member of the workspace."""
    with one_line_errors(as_json=as_json), client(api) as sl:
        sl.auth.sign_in(own_wallet())
        joined = sl.auth.accept_invitation(invitation_id)
    print_value(joined, as_json, f"{joined.role} of {joined.slug}")


@invitations_app.command("decline")
def decline_invitation(invitation_id: _InvitationId, api: Url = None, as_json: AsJson = False) -> None:
    """Decline an invitation. Its workspace cannot invite this wallet again for 24 hours."""
    with one_line_errors(as_json=as_json), client(api) as sl:
        sl.auth.sign_in(own_wallet())
        declined = sl.auth.decline_invitation(invitation_id)
    print_value(declined, as_json, f"Declined: {declined.workspace.slug}")


def _month(text: str | None) -> str | None:
    if text is not None and re.fullmatch(r"\d{4}-(0[1-9]|1[0-2])", text, re.ASCII) is None:
        raise typer.BadParameter(f"{text} is not a month. Write it as YYYY-MM, such as 2026-11.")
    return text


@app.command(rich_help_panel=PANEL)
def statement(
    month: Annotated[str | None, typer.Argument(callback=_month, help="YYYY-MM, in UTC; default: this month.")] = None,
    pdf: Annotated[Path | None, typer.Option(help="Write the statement, with its invoice, to this file too.")] = None,
    api: Url = None,
    as_json: AsJson = False,
) -> None:
    """Print what the key's workspace was charged and earned in a month, and the number of its invoice."""
    with one_line_errors(as_json=as_json), client(api, needs_key=True) as sl:
        workspace_id = own_workspace_id(sl)
        month = month or f"{datetime.fromtimestamp(unix_s(), UTC):%Y-%m}"
        found = sl.workspaces.statement(workspace_id, month)
        if pdf is not None:
            content = sl.workspaces.statement_pdf(workspace_id, month)
            with named_by("--pdf"):
                pdf.write_bytes(content)
    written = [] if pdf is None else [f"{pdf}: the statement of {found.month} as PDF"]
    print_value(found, as_json, "\n".join([*_statement_lines(found), *written]))


def _above_0(fps: float) -> float:
    if not fps > 0:
        raise typer.BadParameter(f"{fps} is not above 0. Give frames a second, such as 1 or 0.2.")
    return fps


Fps = Annotated[float, typer.Option(callback=_above_0, help="Frames a second.")]
Count = Annotated[int | None, typer.Option(min=1, help="Stop after this many frames.")]
Width = Annotated[int | None, typer.Option(min=16, max=1920, help="Width in pixels.")]
Out = Annotated[Path, typer.Option(help="Directory for the frames.")]


def _save_frame(frame: "Frame", out: Path) -> Path:
    path = out / f"{frame.sequence:08}.jpg"
    with named_by("--out"):
        path.write_bytes(frame.jpeg)
    return path


def _frame_json(frame: "Frame", path: Path, session_id: str) -> dict[str, object]:
    return {"sessionId": session_id, "frame": str(path), "ageMs": frame.age_ms, "meterState": frame.meter_state}


def _say_frame(frame: "Frame", path: Path, session_id: str, *, as_json: bool) -> None:
    text = f"{path}: {frame.age_ms} ms old, meter {frame.meter_state}"
    typer.echo(json.dumps(_frame_json(frame, path, session_id)) if as_json else text, err=True)


def _say_pause(session: "Session", *, as_json: bool) -> None:
    """Print the reason of a pause."""
    reason = None if session.pause_reason is None else str(session.pause_reason)
    if reason is not None:
        text = f"Paused, nothing is charged: {pause_text(reason)}."
        typer.echo(json.dumps({"pauseReason": reason}) if as_json else text, err=True)


def _until_over(frames: "Iterator[Frame]") -> "Iterator[Frame]":
    """Yield the frames of a view until it is over for any reason, which is told with the receipt."""
    from sightline_client.errors import SessionOverError

    with suppress(SessionOverError):
        yield from frames


def _say_end_and_wait(session: "Session") -> None:
    say_end(session)
    if session.charged_micro_usdc:
        typer.echo("Waiting until the payment is confirmed.", err=True)


def _say_refused(view: "View", error: "ApiError", *, as_json: bool) -> None:
    """Say how a view has ended by a call that the server refused."""
    from sightline_client.errors import is_suspension

    if is_suspension(error) and view.is_requested:
        print_warning("The workspace was suspended; the service has ended its sessions.", as_json)
    elif view.is_entered and view.session.started_at is not None and not as_json:
        typer.echo(f"Session {view.session.id} has ended: `sightline receipt {view.session.id}`.", err=True)


def _verified_receipt(
    sl: "Sightline", view: "View", config: "ChainConfig", *, as_json: bool, says_end: bool
) -> "Receipt":
    """Wait for the payment of a view that is over, and verify its receipt. A Ctrl-C says how it is seen later."""
    try:
        if not as_json and says_end:
            _say_end_and_wait(view.session)
        receipt = view.receipt()
        receipt.verify(deployment=config.deployment, rpc=config.rpc_url)
    except KeyboardInterrupt:
        shows = f"`sightline receipt {view.session.id}` shows what is paid."
        print_warning(f"Session {view.session.id} has ended. {shows}", as_json)
        raise
    return receipt


def _print_watched(
    receipt: "Receipt", session: "Session", saved: int, config: "ChainConfig", *, as_json: bool, is_for_nothing: bool
) -> None:
    """Print frames, charge and payment; one sentence for a view that was stopped before it cost anything."""
    said: dict[str, object] = {
        "id": receipt.session.id,
        "frames": saved,
        "endReason": session.end_reason,
        "cleanSeconds": receipt.seconds,
        "chargedMicroUsdc": str(receipt.charged),
        "settlementTxHash": receipt.tx_hash,
        "isVerified": True,
    }
    frames_text = f"{saved} frame{'' if saved == 1 else 's'}, {receipt.seconds} s, {receipt.charged.usdc} USDC"
    text = f"Session {receipt.session.id}: {frames_text}, verified, {payment_text(receipt, is_escrow=config.is_escrow)}"
    if is_for_nothing:
        done = "ended before its first picture" if session.started_at else "withdrawn before anybody filmed"
        text = f"Session {session.id} was {done}, and costs nothing."
    print_value(said, as_json, text)


@app.command(rich_help_panel=PANEL, cls=PlaceCommand)
def watch(
    lat: Lat,
    lng: Lng,
    seconds: Annotated[int, typer.Option(min=1, max=SECONDS_MAX, help="Longest duration.")] = 60,
    instructions: Instructions = None,
    max_charge: MaxCharge = None,
    fps: Fps = 1.0,
    count: Count = None,
    wait: Annotated[float, typer.Option(min=0, help="Seconds to wait for an operator.")] = 60.0,
    width: Width = None,
    out: Out = Path("frames"),
    signed: Annotated[
        bool, typer.Option("--signed", help="Save frames with content credentials, for `sightline verify`.")
    ] = False,
    api: Url = None,
    as_json: AsJson = False,
) -> None:
    """Request a session, save its frames, end it at Ctrl-C, and print the verified receipt.

    With escrow, SIGHTLINE_WALLET_KEY signs the payment, or the mandate pays. Exit code 1 if no frame came, 130 if
    Ctrl-C came before the first one.
    """
    from sightline_client.commands.signals import stop_like_ctrl_c
    from sightline_client.errors import ApiError
    from sightline_client.models import FrameSigning

    views: list[View] = []
    with (
        one_line_errors(as_json=as_json, names_sessions=True),
        nothing_requested(lambda: any(view.is_requested for view in views), as_json=as_json),
        client(api, needs_key=True) as sl,
    ):
        with named_by("--out"):
            out.mkdir(parents=True, exist_ok=True)
        stop_like_ctrl_c()  # SIGTERM must end the session too: its meter runs
        config = sl.config()
        if signed and config.frame_signing == FrameSigning.OFF:
            raise ValueError("This server does not sign frames. Leave out --signed.")
        wallet, quote = paying_wallet(config), sl.quote(lat, lng, seconds=seconds)
        with fitting_command_named(this_command_with):
            quote.require_within(max_charge, seconds)
        view = sl.view(
            lat,
            lng,
            seconds=seconds,
            quote=quote,
            instructions=instructions,
            max_charge=max_charge,
            operator_wait_s=wait,
            payer=wallet,
        )
        views.append(view)
        saved, is_stopped = 0, False
        frames = _until_over(view.frames(fps=fps, width=width, signed=signed or None))
        try:
            with view:
                state = "RUNNING"
                for frame in frames:
                    path = _save_frame(frame, out)
                    saved += 1
                    _say_frame(frame, path, view.session.id, as_json=as_json)
                    if frame.meter_state == "PAUSED" != state:
                        _say_pause(view.refresh(), as_json=as_json)
                    state = frame.meter_state
                    if saved == count:
                        break
        except KeyboardInterrupt:
            if not view.is_entered:
                raise
            is_stopped = True
            if not as_json and saved:
                typer.echo(f"Session {view.session.id} is {view.session.state}.", err=True)
        except ApiError as error:
            _say_refused(view, error, as_json=as_json)
            raise
        is_for_nothing = is_stopped and saved == 0 and view.session.charged_micro_usdc == 0
        receipt = _verified_receipt(sl, view, config, as_json=as_json, says_end=not is_for_nothing)
    _print_watched(receipt, view.session, saved, config, as_json=as_json, is_for_nothing=is_for_nothing)
    if saved == 0:
        if not (is_stopped or as_json):
            typer.echo("No frame came: no video of the operator arrived. Try again.", err=True)
        raise typer.Exit(130 if is_stopped else 1)


@app.command(rich_help_panel=PANEL)
def frames(
    session_id: SessionId,
    fps: Fps = 1.0,
    count: Count = None,
    width: Width = None,
    out: Out = Path("frames"),
    api: Url = None,
    as_json: AsJson = False,
) -> None:
    """Save frames of a LIVE session, such as one of `sightline request`, and print their files.

    The session goes on when this command ends.
    """
    from sightline_client.commands.signals import until_stopped

    with one_line_errors(as_json=as_json, session_id=session_id), client(api, needs_key=True) as sl:
        session = sl.sessions.get(session_id)
        if session.state != "LIVE":
            step = "" if session.state.is_over else f" {next_step_text(session)}"
            raise ValueError(f"Session {session.id} is {session.state}. It has frames while it is LIVE.{step}")
        with named_by("--out"):
            out.mkdir(parents=True, exist_ok=True)
        with until_stopped() if count is None else nullcontext():
            _save_until_over(sl, session, sl.sessions.frames(session.id, fps=fps, width=width), count, out, as_json)


def _save_until_over(
    sl: "Sightline", session: "Session", taken: "Iterable[Frame]", count: int | None, out: Path, as_json: bool
) -> None:
    """Save this many frames and print their files, or all until the session is over, and say so on stderr."""
    state = "RUNNING"
    for saved, frame in enumerate(taken, start=1):
        path = _save_frame(frame, out)
        typer.echo(json.dumps(_frame_json(frame, path, session.id)) if as_json else path)
        if frame.meter_state == "PAUSED" != state:
            _say_pause(sl.sessions.get(session.id), as_json=as_json)
        state = frame.meter_state
        if saved == count:
            return
    session = sl.sessions.get(session.id)
    if as_json:
        typer.echo(json.dumps({"sessionId": session.id, "endReason": session.end_reason}), err=True)
    else:
        say_end(session)


@app.command(rich_help_panel=PANEL)
def clip(
    session_id: SessionId,
    seconds: Annotated[int, typer.Option(min=1, max=30, help="The last seconds.")] = 10,
    out: Annotated[Path, typer.Option(help="File; .mp4, or .webm for VP8, is added if missing.")] = Path("clip"),
    signed: Annotated[
        bool, typer.Option("--signed", help="Save it with content credentials, for `sightline verify`.")
    ] = False,
    api: Url = None,
    as_json: AsJson = False,
) -> None:
    """Save the last seconds of a LIVE session as a video file. The server must keep video for clips."""
    with one_line_errors(as_json=as_json, session_id=session_id), client(api, needs_key=True) as sl:
        taken = sl.sessions.clip(session_id, seconds=seconds, signed=signed or None)
        path = out if out.suffix == taken.suffix else out.with_name(out.name + taken.suffix)
        with named_by("--out"):
            path.write_bytes(taken.video)
    said = {"file": str(path), "seconds": taken.seconds, "frames": taken.frames, "ageMs": taken.age_ms}
    print_value(
        said, as_json, f"{path}: {taken.seconds:.1f} s, {taken.frames} frames, the last one {taken.age_ms} ms old"
    )


def _secret(text: str | None) -> str | None:
    from sightline_client.webhooks import signed_headers

    try:
        signed_headers("id", b"", text or "")
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    return text


@app.command(rich_help_panel=PANEL)
def listen(
    session_id: Annotated[str | None, id_argument("a session", "A session; default: the key's workspace.")] = None,
    forward_to: Annotated[
        str | None,
        typer.Option(callback=http_url, help="URL of a local program that gets the events as signed webhooks."),
    ] = None,
    secret: Annotated[
        str | None,
        typer.Option(
            callback=_secret,
            envvar="WEBHOOK_SECRET",
            help="whsec_... to sign with; default: a new one, which is printed.",
        ),
    ] = None,
    api: Url = None,
    as_json: AsJson = False,
) -> None:
    """Print events as they happen, until Ctrl-C. If the connection is lost, try for 15 minutes to connect again.

    With --forward-to each event is sent once, as a webhook endpoint would get it.
    """
    from sightline_client.commands.signals import until_stopped
    from sightline_client.retry import RetryPolicy

    with (
        one_line_errors(as_json=as_json, session_id=session_id, says_reconnected=True),
        client(api, needs_key=True) as sl,
    ):
        if session_id is not None:
            stream = sl.sessions.events(session_id)
        else:
            stream = sl.workspaces.events(own_workspace_id(sl))
        take = _printing() if forward_to is None else _forwarding(sl, forward_to, secret, as_json)
        with stream as events, until_stopped():
            for event in events:
                # From the first event on: a server that is not reached at the start is given up sooner.
                sl.transport.retry = RetryPolicy(attempts=1_000, budget_s=RESUMES_S)
                take(event, as_json)
                sys.stdout.flush()


def _print_now(said: dict[str, object], as_json: bool, line: str) -> None:
    """Print what has just arrived, with the time, in UTC: most events carry none."""
    now = datetime.fromtimestamp(unix_s(), UTC)
    at = now.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    print_value({"at": at} | said, as_json, f"{time_text(now)}  {line}")


def _printing() -> "Callable[[Event, bool], None]":
    """Return what prints an event."""
    from sightline_client.commands.event_lines import EventLines

    lines = EventLines()

    def print_event(event: "Event", as_json: bool) -> None:
        data = {name: value for name, value in event.data.items() if not name.endswith("Url")}
        line = lines.line(event)
        if as_json or line is not None:
            _print_now({"event": event.name, "data": data}, as_json, line or "")

    return print_event


def _forwarding(sl: "Sightline", url: str, secret: str | None, as_json: bool) -> "Callable[[Event, bool], None]":
    """Print the secret. Returns what forwards an event and prints what became of it."""
    from sightline_client.commands.forward import Forwarder
    from sightline_client.runtime import new_secret

    key = secret or "whsec_" + base64.b64encode(new_secret()).decode()
    forwarder = Forwarder(sl, url, key)
    print_value({"url": url, "secret": key}, as_json, f"Events go to {url}. They are signed with WEBHOOK_SECRET={key}")
    sys.stdout.flush()

    def forward(event: "Event", as_json: bool) -> None:
        for sent in forwarder.forward(event):
            _print_now(sent, as_json, f"{sent['status'] or sent['error']}  {sent['type']}  {sent['id']}")

    return forward


@app.command(rich_help_panel=PANEL)
def verify(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", exists=True, dir_okay=False, help="JPEG frames or MP4 clips.")
    ],
    root: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="PEM file with the root certificate to trust.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check the C2PA signature of frames or clips, and print who signed them and who states what.

    Exit code 0 means that all are signed by a certificate of --root and not changed; 1 anything else. With --json,
    several files have one object a line, with the name of the file.
    """
    with one_line_errors(as_json=as_json):
        from sightline_client.commands.verify import run_verify

        raise typer.Exit(run_verify(files, root, as_json=as_json))
