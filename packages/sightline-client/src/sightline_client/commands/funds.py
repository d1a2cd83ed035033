"""The commands `sightline quote` and `sightline wallet`: what a session costs, and what may be spent."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
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
    from sightline_client.models import Quote, Session, StoredMandate, Wallet
    from sightline_client.money import MicroUsdc

PANEL: Final = "Watch"
"""Heading of `sightline --help`."""

SET_MANDATE: Final = "`sightline mandate --per-session 1 --per-day 10`"
SESSIONS_READ: Final = 100
"""Newest sessions in which `wallet` looks for charges that are not paid."""
RAISE_LIMITS: Final = "Raise the limits that it set on the settlement contract, in the console under Wallet."

app = typer.Typer()


@app.command(rich_help_panel=PANEL, cls=PlaceCommand)
def quote(
    lat: Lat,
    lng: Lng,
    seconds: Annotated[int, typer.Option(min=1, max=SECONDS_MAX, help="Longest duration.")] = 300,
    api: Url = None,
    as_json: AsJson = False,
) -> None:
    """Print what a session at a place costs now, and how many operators cover the place. Nothing is requested."""
    with one_line_errors(as_json=as_json), client(api, needs_key=True) as sl:
        found = sl.quote(lat, lng, seconds=seconds)
    print_value(found, as_json, "\n".join(_quote_lines(found)))


def _quote_lines(found: "Quote") -> Iterator[str]:
    rate, total = found.rate_per_second_micro_usdc.usdc, found.estimated_total_micro_usdc.usdc
    yield f"{rate} USDC a second, at most {total} USDC for {found.duration_seconds} s"
    count = found.available_operators
    if found.own_session_id is not None:
        yield f"the only operator at the place is in your session {found.own_session_id}"
    else:
        yield f"{count or 'no'} operator{'' if count == 1 else 's'} online at the place"


@app.command(rich_help_panel=PANEL)
def wallet(api: Url = None, as_json: AsJson = False) -> None:
    """Print the wallet of the key, the limits of both, and what a new session may cost at most.

    With escrow, also the mandate under which the key buys without the wallet.
    """
    with one_line_errors(as_json=as_json), client(api, needs_key=True) as sl:
        found, is_escrow = sl.wallet.get(), sl.config().is_escrow
        mandate = stored_mandate(sl) if is_escrow and not as_json else None
        unpaid = _unpaid(sl) if found.held_micro_usdc and not as_json else []
    print_value(found, as_json, "\n".join(_wallet_lines(found, is_escrow, mandate, unpaid)))


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
        from sightline_client.money import MicroUsdc

        yield from _key_limit_lines(found)
        free = found.within_key_limits(MicroUsdc(max(0, found.tracked_balance - found.held_micro_usdc)))
        yield f"spendable  {free.usdc} with a payment that the wallet signs, which needs no allowance"
        yield f"           {found.spendable_micro_usdc.usdc} within the allowance"
        if mandate is None:
            yield f"mandate    none: without the wallet, the API key cannot buy. {SET_MANDATE} sets one"
        else:
            if mandate.valid_until > unix_s():
                least = min(found.spendable_micro_usdc, mandate.max_per_session, mandate.left_today)
                yield f"           {MicroUsdc(least).usdc} by the API key without the wallet, under the mandate"
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


def warn_of_funds(sl: "Sightline", price: int, *, as_json: bool) -> None:
    """Say before a purchase without escrow that the wallet does not cover it, unless the key may not read the wallet.

    A service may sell it nevertheless. The charge stays unpaid then, and the wallet gets no further session.
    """
    from sightline_client.errors import NotAuthorizedError
    from sightline_client.money import MicroUsdc

    try:
        found = sl.wallet.get()
    except NotAuthorizedError:
        return
    covered = found.covered_micro_usdc
    if covered >= price:
        return
    most = MicroUsdc(price)
    of_most = f"only {covered.usdc} USDC of the {most.usdc} USDC" if covered else f"nothing of the {most.usdc} USDC"
    print_warning(
        f"The wallet covers {of_most} that the session may cost. While a charge is not paid, the wallet gets no "
        f"further session. {' '.join(_steps(found, price))}",
        as_json,
    )


def _steps(found: "Wallet", price: int) -> Iterator[str]:
    """Name what a wallet lacks for a price beside what is held."""
    from sightline_client.money import MicroUsdc

    yield from _funding_steps(found, MicroUsdc(found.held_micro_usdc + price))
    if found.available_micro_usdc >= price:
        yield RAISE_LIMITS


def _funding_steps(found: "Wallet", needed: "MicroUsdc") -> Iterator[str]:
    """Say what to deposit and to approve until balance and allowance cover an amount."""
    if found.tracked_balance < needed:
        yield f"Send USDC to {found.wallet_address}: its balance is {found.tracked_balance.usdc}."
    if found.tracked_allowance < needed:
        yield f"Run `sightline approve {needed.usdc}` or more: its allowance is {found.tracked_allowance.usdc}."


@contextmanager
def refused_payment_explained(sl: "Sightline") -> Iterator[None]:
    """Add to the error of a payment that the wallet does not cover what the wallet needs."""
    from sightline_client.errors import ReceiptError

    try:
        yield
    except ReceiptError as error:
        if error.refused_for is None:
            raise
        steps = " ".join([str(error), *_payment_steps(sl, error.refused_for)])
        raise ReceiptError(steps, refused_for=error.refused_for) from error


def _payment_steps(sl: "Sightline", refused_for: str) -> Iterator[str]:
    """Name what the wallet lacks for what is held, which includes a charge that is not paid."""
    from sightline_client.errors import NotAuthorizedError

    if refused_for.endswith("_LIMIT"):
        yield RAISE_LIMITS
        return
    with suppress(NotAuthorizedError):  # the key may not read the wallet
        yield from _funding_steps(found := sl.wallet.get(), found.held_micro_usdc)


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
