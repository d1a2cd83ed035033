"""Commands for payments: allowance and mandate; claim and reclaim in escrow, which work without the service."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from sightline_client.commands.access import client, named_by, one_line_errors, own_wallet, own_workspace_id
from sightline_client.commands.funds import mandate_text
from sightline_client.commands.options import (
    USDC,
    AsJson,
    NumberCommand,
    SessionId,
    Url,
    http_url,
    usdc_argument,
    usdc_option,
)
from sightline_client.commands.printing import print_value, print_warning
from sightline_client.runtime import unix_s

# Each command imports the client when it runs, so that `--help` is fast.
if TYPE_CHECKING:
    from sightline_client import Sightline
    from sightline_client.models import ChainConfig, RelayedPermit, Settlement, Statement, StoredMandate
    from sightline_client.money import MicroUsdc
    from sightline_client.wallet import LocalWallet

PANEL: Final = "Escrow"
"""Heading of `sightline --help`."""
DAY_S: Final = 86_400
NOT_NEEDED: Final = (
    "This service holds no payments in escrow, so no mandate is needed: an API key buys within the allowance, which "
    "`sightline approve` gives."
)

app = typer.Typer()


_SOURCES: Final = (
    "`sightline save-statement SESSION FILE` saves it for both parties, and `sightline device --statements DIRECTORY` "
    "keeps it while it films"
)


def _existing(file: Path) -> Path:
    if not file.is_file():
        raise typer.BadParameter(
            f"{file} is no file. Pass a statement of the meter of a session in escrow: {_SOURCES}. A service without "
            "escrow has none."
        )
    return file


_File = Annotated[
    Path,
    typer.Argument(callback=_existing, help="Statement of a session, of `save-statement` or `device --statements`."),
]
_Rpc = Annotated[str, typer.Option(callback=http_url, help="JSON-RPC URL of a node of the chain.")]


@app.command(rich_help_panel="Watch", cls=NumberCommand)
def approve(
    amount: Annotated[USDC, usdc_argument("The most that may be taken in all, such as 20; 0 takes it back.")],
    api: Url = None,
    as_json: AsJson = False,
) -> None:
    """Let the service's contract take USDC of the wallet in SIGHTLINE_WALLET_KEY, for sessions.

    Without escrow, the wallet sends the approval, and pays its gas.
    With escrow, it signs a permit (EIP-2612), and the service pays the gas.
    Mandates and payments of kind consent are held from the allowance.
    """
    with one_line_errors(as_json=as_json), client(api, needs_key=True) as sl:
        wallet, config, value = own_wallet(), sl.config(), amount
        before = _allowance(sl)
        relayed = sl.wallet.approve(value, wallet) if config.is_escrow else _approve(sl, config, value, wallet)
    replaced = f", in place of {before.usdc} USDC" if before else ""
    text = f"{relayed.owner} allows {relayed.spender} to take {relayed.value.usdc} USDC{replaced}: {relayed.tx_hash}"
    print_value(relayed, as_json, text)


@app.command(rich_help_panel="Watch")
def mandate(
    per_session: Annotated[int | None, usdc_option("Most that one session may cost.")] = None,
    per_day: Annotated[int | None, usdc_option("Most that the sessions of one day (UTC) may cost.")] = None,
    days: Annotated[int, typer.Option(min=1, max=3_650, help="Days after which it ends.")] = 30,
    revoke: Annotated[bool, typer.Option("--revoke", help="Let the service forget it.")] = False,
    api: Url = None,
    as_json: AsJson = False,
) -> None:
    """With escrow, let API keys buy without the wallet, within limits. Without limits, print the present mandate.

    SIGHTLINE_WALLET_KEY signs it. Its payments are taken from the allowance that `sightline approve` gives.
    It replaces an earlier one.
    """
    if revoke and (per_session is not None or per_day is not None):
        raise typer.BadParameter("--revoke takes no limits.")
    if (per_session, per_day) != (None, None) and not (per_session and per_day):
        raise typer.BadParameter("A mandate has both limits, above 0: --per-session and --per-day.")
    with one_line_errors(as_json=as_json), client(api, needs_key=True) as sl:
        config = sl.config()
        if not config.is_escrow and (per_session is not None or revoke):
            raise ValueError(NOT_NEEDED)
        if not config.is_escrow:
            print_value({"isEscrow": False}, as_json, NOT_NEEDED)
            return
        if per_session is not None and per_day is not None:
            _set_mandate(sl, config, per_session, per_day, days, as_json=as_json)
            return
        found = sl.wallet.delete_mandate() if revoke else sl.wallet.mandate()
    revoked = (
        "The service has forgotten the mandate, and buys nothing more under it. The contract takes it until its end; "
        "`sightline approve 0` takes the allowance back."
    )
    said: dict[str, object] = found.model_dump(mode="json", by_alias=True) | {"isRevoked": revoke}
    print_value(said, as_json, revoked if revoke else f"API keys may spend, in USDC, {mandate_text(found)}")


def _set_mandate(
    sl: "Sightline", config: "ChainConfig", per_session: int, per_day: int, days: int, *, as_json: bool
) -> None:
    from sightline_client.escrow import sign_mandate
    from sightline_client.signers import require_wallet_of

    wallet = own_wallet()
    require_wallet_of(wallet, sl.workspaces.get(own_workspace_id(sl)).wallet_address)
    signed = sign_mandate(
        config,
        wallet,
        max_per_session=per_session,
        max_per_day=per_day,
        max_rate_per_second=per_session,  # no session of a second or more has a higher rate
        valid_until=int(unix_s()) + days * DAY_S,
    )
    kept: StoredMandate = sl.wallet.set_mandate(signed)
    print_value(kept, as_json, f"API keys may spend, in USDC, {mandate_text(kept)}")
    if per_session > per_day:
        print_warning(
            f"The limit of a day counts first: a session costs at most {kept.max_per_day.usdc} USDC.", as_json
        )
    allowed = _allowance(sl)
    if allowed is not None and allowed < per_session:
        print_warning(
            f"The allowance is {allowed.usdc} USDC, and a mandate pays from it. Run `sightline approve "
            f"{kept.max_per_day.usdc}` or more.",
            as_json,
        )


def _allowance(sl: "Sightline") -> "MicroUsdc | None":
    """Return the allowance as the service read it last; None if the key may not read the wallet."""
    from sightline_client.errors import NotAuthorizedError, NotFoundError

    try:
        return sl.wallet.get().tracked_allowance
    except (NotAuthorizedError, NotFoundError):
        return None


def _approve(sl: "Sightline", config: "ChainConfig", micro_usdc: int, wallet: "LocalWallet") -> "RelayedPermit":
    """Send the approval of the settlement contract as a transaction of the workspace's wallet."""
    from sightline_client import Chain
    from sightline_client.models import RelayedPermit
    from sightline_client.money import MicroUsdc
    from sightline_client.signers import require_wallet_of

    require_wallet_of(wallet, sl.workspaces.get(own_workspace_id(sl)).wallet_address)
    spender = config.settlement_address
    tx_hash = Chain(config.rpc_url).approve(wallet, token=config.usdc_address, spender=spender, amount=micro_usdc)
    return RelayedPermit(owner=wallet.address, spender=spender, value=MicroUsdc(micro_usdc), tx_hash=tx_hash)


@app.command("save-statement", rich_help_panel=PANEL)
def save_statement(
    session_id: SessionId,
    file: Annotated[Path, typer.Argument(help="File to write; what it has is replaced.")],
    api: Url = None,
    as_json: AsJson = False,
) -> None:
    """Save the meter's signed statement of a session in escrow, for `reclaim` and `claim` without the service.

    Both parties of the session may. Save it once the session is LIVE, and again after an extension.
    """
    with one_line_errors(as_json=as_json, session_id=session_id), client(api, needs_key=True) as sl:
        found = sl.sessions.statement(session_id)
        with named_by("the argument FILE"):
            file.write_text(found.model_dump_json(by_alias=True))
        settled = _settlement(sl, session_id) if found.is_final else None
    said: dict[str, object] = {"id": session_id, "file": str(file), "isFinal": found.is_final}
    until = "is final" if found.is_final else "is not final"
    of_what = f"{file}: the statement of session {session_id} {until}, {found.clean_seconds} s."
    print_value(
        said | {"settlementTxHash": None if settled is None else settled.tx_hash},
        as_json,
        f"{of_what} {use_of_statement(file, found, settled)}",
    )


def _settlement(sl: "Sightline", session_id: str) -> "Settlement | None":
    """Return the settlement of a session if the chain has it; None also if the key may not read it."""
    from sightline_client.errors import NotAuthorizedError

    try:
        found = sl.sessions.settlement(session_id)
    except NotAuthorizedError:
        return None
    return found if found.state == "CONFIRMED" else None


def use_of_statement(file: Path, found: "Statement", settled: "Settlement | None") -> str:
    """Say what a saved statement is good for.

    Args:
        settled: The session's settlement, if it is confirmed.
    """
    if settled is not None:
        paid = settled.payload is not None and settled.payload.to_amount > 0
        done = "The session is paid" if paid else "The session is settled without a charge"
        by = "" if settled.tx_hash is None else f" in {settled.tx_hash}"
        return f"{done}{by}: nothing is left to claim or to reclaim."
    from_when = "" if found.is_final else " from an hour after the session's latest end; a final one does so at once"
    return (
        f"If the service charges nothing, `sightline claim {file} --rpc-url URL` pays its operator{from_when}. "
        f"`sightline reclaim {file} --rpc-url URL` returns the hold to its payer 48 hours after the session's latest "
        "end, if nobody has charged it."
    )


@app.command(rich_help_panel=PANEL)
def claim(statement: _File, rpc_url: _Rpc) -> None:
    """Collect a session's charge from the escrow contract by the meter's signed statement.

    Anybody may send it; SIGHTLINE_WALLET_KEY pays the gas, and the operator and the payer of the statement get the
    money. A statement that is not final is accepted from an hour after the session's latest end.
    """
    _send("claim", statement, rpc_url)


@app.command(rich_help_panel=PANEL)
def reclaim(statement: _File, rpc_url: _Rpc) -> None:
    """Return an amount in escrow to its payer when nobody has charged it 48 hours after the session's latest end.

    Anybody may send it; SIGHTLINE_WALLET_KEY pays the gas.
    """
    _send("reclaim", statement, rpc_url)


def _statement(model: "type[Statement]", file: Path) -> "Statement":
    """Read a saved statement, or the answer of GET /sessions/{id}/statement with its envelope.

    Raises:
        ValueError: It is neither.
    """
    found = json.loads(file.read_bytes())
    return model.model_validate(found.get("data", found) if isinstance(found, dict) else found)


def _send(call: str, file: Path, rpc_url: str) -> None:
    with one_line_errors():
        from sightline_client import Chain
        from sightline_client.models import Statement

        try:
            found = _statement(Statement, file)
        except ValueError:
            raise typer.BadParameter(f"{file} is not a statement of a meter: {_SOURCES}.") from None
        chain = Chain(rpc_url)
        answered = int(chain.call("eth_chainId"), 16)
        if answered != found.chain_id:
            raise ValueError(f"{rpc_url} is a node of chain {answered}, the statement is of chain {found.chain_id}.")
        send = chain.claim if call == "claim" else chain.reclaim
        typer.echo(send(own_wallet(), found))
