"""The commands `sightline quote` and `sightline wallet`: what a session costs, and what may be spent."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Final

import typer

from sightline_client.commands.access import client, one_line_errors
from sightline_client.commands.options import AsJson, Lat, Lng, PlaceCommand, Url
from sightline_client.commands.printing import print_value, print_warning, time_text
from sightline_client.runtime import SECONDS_MAX, unix_s

# The commands import the client when they run, so that `--help` is fast.
if TYPE_CHECKING:
    from sightline_client import Sightline
    from sightline_client.models import ChainConfig, Quote, Session, StoredMandate, Wallet, WalletEvent
    from sightline_client.money import MicroUsdc

PANEL: Final = "Watch"
"""Heading of `sightline --help`."""

SET_MANDATE: Final = "`sightline mandate --per-session 1 --per-day 10`"
SESSIONS_READ: Final = 100
"""Newest sessions in which `wallet` looks for charges that are not paid."""

app = typer.Typer()


@app.command(rich_help_panel=PANEL, cls=PlaceCommand)
def quote(
    lat: Lat,
    lng: Lng,
    seconds: Annotated[int, typer.Option(min=1, max=SECONDS_MAX, help="Longest duration.")] = 300,
    api: Url = None,
    as_json: AsJson = False,
) -> None:
    """Print what a session at a place costs now, and how many operators are free at the place. Nothing is requested."""
    with one_line_errors(as_json=as_json), client(api, needs_key=True) as sl:
        found = sl.quote(lat, lng, seconds=seconds)
    print_value(found, as_json, "\n".join(_quote_lines(found)))


def _quote_lines(found: "Quote") -> Iterator[str]:
    rate, total = found.rate_per_second_micro_usdc.usdc, found.estimated_total_micro_usdc.usdc
    yield f"{rate} USDC a second, at most {total} USDC for {found.duration_seconds} s"
    count = found.available_operators
    if found.own_session_id is not None:
        yield f"the only operator at the place is in your session {found.own_session_id}"
    elif count == 0:
        yield (
            "no operator is known to be free at the place: none is online, none has sent a heartbeat for a minute, or "
            "each has a session or a pause after a no-show"
        )
    else:
        yield f"{count} operator{'' if count == 1 else 's'} free at the place"


@app.command(rich_help_panel=PANEL)
def wallet(api: Url = None, as_json: AsJson = False) -> None:
    """Print the wallet of the key, the limits of both, and what a new session may cost at most.

    With escrow, also the mandate under which the key buys without the wallet.
    """
    with one_line_errors(as_json=as_json), client(api, needs_key=True) as sl:
        found, is_escrow = sl.wallet.get(), sl.config().is_escrow
        mandate = stored_mandate(sl) if is_escrow else None
        unpaid = _unpaid(sl) if found.held_micro_usdc and not as_json else []
    said = found.model_dump(mode="json", by_alias=True) | spendable_now(found, is_escrow, mandate)
    print_value(said, as_json, "\n".join(_wallet_lines(found, is_escrow, mandate, unpaid)))


def spendable_now(found: "Wallet", is_escrow: bool, mandate: "StoredMandate | None") -> dict[str, object]:
    """Return, as JSON, the most that a new session may cost if the API key buys it.

    With escrow also the most with a payment that the wallet signs, and the mandate.
    """
    if not is_escrow:
        return {"spendableMicroUsdc": str(found.spendable_micro_usdc)}
    said: dict[str, object] = {
        "spendableMicroUsdc": str(_under_mandate(found, mandate)),
        "spendableSignedMicroUsdc": str(_with_signature(found)),
        "mandate": None,
    }
    if mandate is not None:
        terms = mandate.model_dump(mode="json", by_alias=True)
        said["mandate"] = terms | {"leftToday": str(mandate.left_today)}
    return said


def _under_mandate(found: "Wallet", mandate: "StoredMandate | None") -> "MicroUsdc":
    from sightline_client.money import MicroUsdc

    if mandate is None or mandate.valid_until <= unix_s():
        return MicroUsdc(0)
    return min(found.spendable_micro_usdc, mandate.max_per_session, mandate.left_today)


def _with_signature(found: "Wallet") -> "MicroUsdc":
    from sightline_client.money import MicroUsdc

    return found.within_key_limits(MicroUsdc(max(0, found.tracked_balance - found.held_micro_usdc)))


def _unpaid(sl: "Sightline") -> "list[Session]":
    """Return the newest sessions of the key's workspace whose charge is not paid, if the key may read sessions."""
    from sightline_client.errors import NotAuthorizedError

    try:
        ended = islice(sl.sessions.list(view="consumer", state=["ENDED"]), SESSIONS_READ)
        return [session for session in ended if session.is_unpaid]
    except NotAuthorizedError:
        return []


def stored_mandate(sl: "Sightline") -> "StoredMandate | None":
    """Return the mandate of the key's workspace, if it has one."""
    from sightline_client.errors import NotFoundError

    try:
        return sl.wallet.mandate()
    except NotFoundError:
        return None


def mandate_text(mandate: "StoredMandate") -> str:
    """Say what a mandate allows, and until when."""
    ends = time_text(datetime.fromtimestamp(mandate.valid_until, UTC))
    until = f"until {ends}" if mandate.valid_until > unix_s() else f"over since {ends}: it allows nothing any more"
    left = f", of which {mandate.left_today.usdc} are left" if mandate.held_today else ""
    return (
        f"at most {mandate.max_per_session.usdc} a session and {mandate.max_per_day.usdc} a day (UTC){left}, {until}. "
        "The day counts what is held for each session, not what it costs in the end"
    )


def _wallet_lines(
    found: "Wallet", is_escrow: bool, mandate: "StoredMandate | None", unpaid: "Sequence[Session]"
) -> Iterator[str]:
    yield f"wallet     {found.wallet_address}, amounts in USDC"
    yield f"balance    {found.tracked_balance.usdc}"
    yield f"allowance  {found.tracked_allowance.usdc}"
    yield f"held       {found.held_micro_usdc.usdc} for open sessions and charges that are not paid yet"
    for session in unpaid:
        amount, why = session.charged_micro_usdc.usdc, f"`sightline receipt {session.id}` says why"
        yield f"not paid   {amount} for session {session.id}: {why}"
    if is_escrow:
        yield f"in escrow  {found.escrowed_micro_usdc.usdc}"
        yield from _key_limit_lines(found)
        yield f"spendable  {_with_signature(found).usdc} with a payment that the wallet signs, which needs no allowance"
        yield f"           {found.spendable_micro_usdc.usdc} within the allowance"
        if mandate is None:
            yield f"mandate    none: without the wallet, the API key cannot buy. {SET_MANDATE} sets one"
        else:
            if mandate.valid_until > unix_s():
                least = _under_mandate(found, mandate).usdc
                yield f"           {least} by the API key without the wallet, under the mandate"
            yield f"mandate    {mandate_text(mandate)}"
        return
    if found.limits is None:
        yield "limits     none set on the contract"
    else:
        limits = found.limits
        left = limits.left_today_micro_usdc.usdc
        yield f"limits     {limits.per_session_micro_usdc.usdc} a session"
        yield f"           {limits.per_day_micro_usdc.usdc} a day (UTC), of which {left} are left"
    yield from _key_limit_lines(found)
    yield f"spendable  {found.spendable_micro_usdc.usdc} for a new session"


def _key_limit_lines(found: "Wallet") -> Iterator[str]:
    """Say what the API key may spend, if it has limits."""
    limits, name = found.key_limits, "API key"
    if limits is None:
        return
    if limits.per_session_micro_usdc is not None:
        yield f"{name:<11}at most {limits.per_session_micro_usdc.usdc} a session"
        name = ""
    if limits.per_day_micro_usdc is not None:
        left = (
            "" if limits.left_today_micro_usdc is None else f", of which {limits.left_today_micro_usdc.usdc} are left"
        )
        yield f"{name:<11}at most {limits.per_day_micro_usdc.usdc} a day (UTC){left}"


def refunds_of(sl: "Sightline", session_id: str, consumer_id: str, config: "ChainConfig") -> "list[WalletEvent] | None":
    """Return what the service has paid back of a session, oldest first.

    None if the key belongs to another workspace than its consumer, or may not read the wallet.
    """
    from sightline_client.errors import NotAuthorizedError

    try:
        if sl.me().workspace_id != consumer_id:  # a key of one session may not ask that either
            return None
        moved = list(sl.wallet.events(kind=["TRANSFER_IN"], session_id=session_id))
    except NotAuthorizedError:
        return None
    escrow = config.settlement_address.lower()  # what it gives back of a hold is no refund
    return [event for event in reversed(moved) if not event.removed and event.from_address.lower() != escrow]


def refunds_json(refunds: "Sequence[WalletEvent] | None") -> dict[str, object]:
    """Make the JSON of what `refunds_of` found: null if that is not known."""
    if refunds is None:
        return {"refunds": None}
    return {
        "refunds": [{"amountMicroUsdc": str(each.amount_micro_usdc), "txHash": each.tx_hash} for each in refunds],
    }


def warn_of_funds(sl: "Sightline", price: int, *, as_json: bool) -> None:
    """Say before a purchase without escrow that the wallet does not cover it, if the key may read the wallet."""
    from sightline_client.errors import NotAuthorizedError
    from sightline_client.funds import shortage

    try:
        said = shortage(sl.wallet.get(), price)
    except NotAuthorizedError:
        return
    if said is not None:
        print_warning(said, as_json)


def warn_of_an_empty_wallet(sl: "Sightline", *, as_json: bool) -> None:
    """Say after a sign-up how money gets into a wallet that has none. The client is signed in."""
    found, config = sl.wallet.get(), sl.config()
    if found.tracked_balance > 0:
        return
    given = "" if config.is_escrow else ", then run `sightline approve 5` to let sessions be paid from it"
    test_money = (
        f" The Wallet page of {sl.url}/console/ gives test USDC where the service has a faucet; on its machine so does "
        f"`sightline faucet {found.wallet_address} 5`, with its --data-dir."
        if config.environment == "TEST"
        else ""
    )
    print_warning(
        f"The wallet is empty. Send USDC to {found.wallet_address}{given}.{test_money} `sightline wallet` shows what a "
        "session may cost.",
        as_json,
    )
