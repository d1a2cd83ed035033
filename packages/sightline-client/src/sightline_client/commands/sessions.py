"""Commands for single sessions: sessions, request, tell, extend, end."""

import signal
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from enum import StrEnum, unique
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Final

import typer

from sightline_client.commands.access import (
    client,
    configured_wallet,
    fitting_command_named,
    one_line_errors,
    paying_wallet,
    this_command_with,
)
from sightline_client.commands.funds import refunds_json, refunds_of, warn_of_funds
from sightline_client.commands.options import (
    AsJson,
    Instructions,
    Lat,
    Lng,
    MaxCharge,
    NumberCommand,
    PlaceCommand,
    SessionId,
    Url,
    choice_option,
    id_argument,
    usdc_option,
)
from sightline_client.commands.printing import (
    delivery_text,
    end_text,
    next_step_text,
    nothing_requested,
    pause_text,
    print_value,
    print_warning,
    time_text,
)
from sightline_client.runtime import SECONDS_MAX

# Each command imports the client when it runs, so that `--help` is fast.
if TYPE_CHECKING:
    from sightline_client import Sightline
    from sightline_client.models import Session, WalletEvent

PANEL: Final = "Watch"
"""Heading of `sightline --help`."""
PAGE_MAX: Final = 100
"""Most sessions that one call lists."""
ROW: Final = "{:36}  {:9}  {:22}  {:20}  {:14}  {}"

app = typer.Typer()


@unique
class ListedState(StrEnum):
    """States by which sessions can be listed."""

    REQUESTED = "REQUESTED"
    ASSIGNED = "ASSIGNED"
    LIVE = "LIVE"
    ENDED = "ENDED"
    CANCELLED = "CANCELLED"
    EXPIRED = "EXPIRED"


@unique
class SessionView(StrEnum):
    """Which sessions are listed."""

    CONSUMER = "consumer"
    OPERATOR = "operator"
    OPEN = "open"


@app.command(rich_help_panel=PANEL)
def sessions(
    session_id: Annotated[str | None, id_argument("a session", "Only this one, with all that it has.")] = None,
    state: Annotated[list[ListedState] | None, choice_option(ListedState, "Only this state; may be repeated.")] = None,
    view: Annotated[
        SessionView | None,
        choice_option(
            SessionView,
            "consumer: those that the workspace requested; operator: those that it films; open: those that it may "
            "accept. Default: requested and filmed ones.",
        ),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most this many.")] = 20,
    api: Url = None,
    as_json: AsJson = False,
) -> None:
    """List the sessions of the key's workspace, newest first. The charge of one that is not over is its cost so far.

    With an id, show that session: its seconds, cost, end, and its messages to the operator, with what is known of
    whether each was shown.
    """
    if session_id is not None and (state or view):
        raise typer.BadParameter("A session that is named takes no --state and no --view.")
    with one_line_errors(as_json=as_json, session_id=session_id), client(api, needs_key=True) as sl:
        if session_id is not None:
            session = sl.sessions.get(session_id)
            refunds = _refunds(sl, session)
            lines = [] if as_json else [*_session_lines(session, refunds or ()), *_message_lines(sl, session)]
            said = session.model_dump(mode="json", by_alias=True) | refunds_json(refunds)
            print_value(said, as_json, "\n".join(lines))
            return
        listed = sl.sessions.list(view=view, state=state or (), limit=min(limit, PAGE_MAX))
        found = list(islice(listed, limit))
    if as_json:
        for session in found:
            print_value(session, as_json, "")
        return
    none = "There are no such sessions." if state or view else "No sessions yet."
    for line in _table(found) if found else [none]:
        typer.echo(line)


def _table(found: "list[Session]") -> "Iterator[str]":
    yield ROW.format("id", "state", "place", "created", "charge in USDC", "why it is over")
    for session in found:
        place = f"{session.requested_lat}, {session.requested_lng}"
        charge = session.charged_micro_usdc if session.state.is_over else session.accrued_micro_usdc
        why = end_text(session) + (", not paid" if session.is_unpaid else "")
        row = (session.id, session.state, place, time_text(session.created_at), str(charge.usdc), why)
        yield ROW.format(*row).rstrip()


def _refunds(sl: "Sightline", session: "Session") -> "list[WalletEvent] | None":
    """Return the refunds of a session: none before it is charged; None if they are another workspace's to read."""
    if not session.charged_micro_usdc:
        return []
    return refunds_of(sl, session.id, session.consumer_workspace_id, sl.config())


def _session_lines(session: "Session", refunds: "Sequence[WalletEvent]") -> "Iterator[str]":
    yield f"session   {session.id}, {session.state}"
    if session.pause_reason is not None:
        yield f"paused    {pause_text(str(session.pause_reason))}"
    if session.state.is_over:
        yield f"ended     {end_text(session)}"
    yield f"place     {session.requested_lat}, {session.requested_lng}"
    yield f"created   {time_text(session.created_at)}"
    if session.started_at is not None:
        yield f"started   {time_text(session.started_at)}"
    if session.ended_at is not None:
        yield f"over      {time_text(session.ended_at)}"
    elif session.expires_at is not None:
        yield f"deadline  {time_text(session.expires_at)}"
    yield f"seconds   {session.clean_seconds} charged, of at most {session.max_duration_seconds}"
    if session.state.is_over:
        yield f"cost      {session.charged_micro_usdc.usdc} USDC{', not paid' if session.is_unpaid else ''}"
        for each in refunds:
            yield f"refunded  {each.amount_micro_usdc.usdc} USDC in {each.tx_hash}"
    else:
        yield f"cost      {session.accrued_micro_usdc.usdc} USDC so far, {session.price_text}"
    if session.started_at is not None:
        yield f"pictures  {delivery_text(session.delivery)}"


SHOWN: Final = "shown to the operator"


def _message_lines(sl: "Sightline", session: "Session") -> "Iterator[str]":
    """Say each message, and whether it was shown. A session that is over has its older ones in its events only."""
    is_over = session.state.is_over
    if is_over and session.started_at is not None:
        yield from _older_messages(sl, session)
    unshown = "not shown before the end, as far as is known" if is_over else "not shown yet"
    for sent in session.messages:
        yield f"message   {sent.number}, {SHOWN if sent.shown else unshown}: {sent.text}"


def _older_messages(sl: "Sightline", session: "Session") -> "Iterator[str]":
    """The messages that an ended session does not have itself, from its events, which do not say what was shown.

    A session of an earlier version of the server has none of them.
    """
    first = session.messages[0] if session.messages else None
    if first is not None and first.number == 1:
        return
    # A device that has shown one has shown those before it.
    shown = SHOWN if first is not None and first.shown else "not known whether it was shown"
    for event in sl.sessions.meter_events(session.id):
        facts = {fact.name: fact.value for fact in event.facts}
        if event.kind == "MESSAGE" and (first is None or int(str(facts["number"])) < first.number):
            at = time_text(datetime.fromtimestamp(event.at_ms / 1000, UTC))
            yield f"message   {facts['number']}, {at}, {shown}: {facts['text']}"


@app.command(rich_help_panel=PANEL, cls=PlaceCommand)
def request(
    lat: Lat,
    lng: Lng,
    seconds: Annotated[int, typer.Option(min=1, max=SECONDS_MAX, help="Longest duration.")] = 300,
    instructions: Instructions = None,
    max_charge: MaxCharge = None,
    wait: Annotated[float, typer.Option(min=0, help="Seconds to wait for an operator.")] = 0.0,
    api: Url = None,
    as_json: AsJson = False,
) -> None:
    """Request a session and have an operator dispatched. Once it is LIVE, it runs until `sightline end ID`.

    It lasts at most --seconds. If no operator is available within --wait, the session is cancelled. An operator that
    was dispatched may still decline. With escrow, SIGHTLINE_WALLET_KEY signs the payment, or the mandate pays.
    """
    from sightline_client._sync.dispatch import dispatch_within
    from sightline_client.commands.signals import stop_like_ctrl_c
    from sightline_client.errors import SessionOverError
    from sightline_client.escrow import sign_payment
    from sightline_client.retry import UNSEEN

    asked: list[str] = []
    with (
        one_line_errors(as_json=as_json),
        nothing_requested(lambda: bool(asked), as_json=as_json),
        client(api, needs_key=True) as sl,
    ):
        quote, config = sl.quote(lat, lng, seconds=seconds), sl.config()
        wallet = paying_wallet(config)
        with fitting_command_named(this_command_with):
            quote.require_within(max_charge, seconds)
        if not config.is_escrow:
            warn_of_funds(sl, quote.estimated_total_micro_usdc, as_json=as_json)
        terms = None if wallet is None else sl.sessions.terms(quote.quote_id, seconds=seconds)
        stop_like_ctrl_c()  # SIGTERM must withdraw the request too
        asked.append(quote.quote_id)
        session = sl.sessions.create(
            lat,
            lng,
            seconds=seconds,
            quote_id=quote.quote_id,
            instructions=instructions,
            max_hold_micro_usdc=max_charge,
            payment=None if wallet is None or terms is None else sign_payment(terms, wallet),
        )
        try:
            session = dispatch_within(sl.sessions, session, (lat, lng), wait, quote, says_unseen=False)
            if session.state == "REQUESTED":  # an operator accepted it meanwhile, or it is over
                session = sl.sessions.get(session.id)
            if session.state.is_over:
                raise SessionOverError(session.id, session.state, session.end_reason)
        except BaseException:
            _withdraw(sl, session.id)
            raise
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is bought: its id must be printed
        if not as_json:
            named = f"Session {session.id} is {session.state}, and costs {session.price_text}."
            typer.echo(f"{named} {next_step_text(session)}", err=True)
        if quote.available_operators == 0:
            print_warning(UNSEEN, as_json)
    print_value(session, as_json, session.id)


def _withdraw(sl: "Sightline", session_id: str) -> None:
    """End or cancel a session after an error of the command: it would run and be charged while nobody watches.

    Raises:
        EndNotConfirmedError: The server did not confirm it.
    """
    from sightline_client.errors import EndNotConfirmedError, SightlineError, first_sentence, is_suspension

    try:
        _end(sl, session_id)
    except SightlineError as error:
        if is_suspension(error):
            return  # the service ends it, and refuses this call
        raise EndNotConfirmedError(session_id, None, first_sentence(error)) from error


def _end(sl: "Sightline", session_id: str) -> "Session":
    """End a session, or cancel it if it has no operator yet. Returns it as it is if it is over."""
    from sightline_client.errors import InvalidStateError

    session = sl.sessions.get(session_id)
    if session.state.is_over:
        return session
    try:
        return sl.sessions.cancel(session_id) if session.state == "REQUESTED" else sl.sessions.end(session_id)
    except InvalidStateError:
        session = sl.sessions.get(session_id)
        if not session.state.is_over:  # it did not end in between
            raise
        return session


@app.command(rich_help_panel=PANEL, cls=NumberCommand)
def extend(
    session_id: SessionId,
    seconds: Annotated[
        int | None, typer.Argument(min=1, max=SECONDS_MAX, help="Added to the longest duration.", show_default=False)
    ] = None,
    seconds_option: Annotated[
        int | None, typer.Option("--seconds", min=1, max=SECONDS_MAX, help="The same as an option.")
    ] = None,
    max_charge: Annotated[int | None, usdc_option("Highest charge of the whole session; more is refused.")] = None,
    api: Url = None,
    as_json: AsJson = False,
) -> None:
    """Give a LIVE session more time. With escrow, SIGHTLINE_WALLET_KEY signs the payment, or the mandate pays."""
    from sightline_client.errors import MaxChargeError
    from sightline_client.escrow import sign_payment
    from sightline_client.money import MicroUsdc

    if seconds is not None and seconds_option is not None:
        raise typer.BadParameter(f"The seconds are given twice. Leave out {seconds} or --seconds {seconds_option}.")
    more = seconds or seconds_option
    if more is None:
        raise typer.BadParameter(f"Say for how many seconds, such as `sightline extend {session_id} 300`.")
    with one_line_errors(as_json=as_json, session_id=session_id), client(api, needs_key=True) as sl:
        wallet, payment = configured_wallet(), None
        now = sl.sessions.get(session_id)
        if max_charge is not None and now.state == "LIVE":
            price = now.rate_per_second_micro_usdc * (now.max_duration_seconds + more)
            if price > max_charge:
                affordable_s = max_charge // now.rate_per_second_micro_usdc - now.max_duration_seconds
                limit = f"--max-charge {MicroUsdc(max_charge).usdc}"
                with fitting_command_named(lambda fitting_s: f"sightline extend {session_id} {fitting_s} {limit}"):
                    raise MaxChargeError(price, max_charge, max(0, affordable_s))
        if now.state == "LIVE" and now.funds_state is None:
            warn_of_funds(sl, now.rate_per_second_micro_usdc * more, as_json=as_json)
        if wallet is not None and now.hold_tx_hash is not None:
            payment = sign_payment(sl.sessions.extension_terms(session_id, seconds=more), wallet)
        session = sl.sessions.extend(session_id, more, max_hold_micro_usdc=max_charge, payment=payment)
    ends = "" if session.expires_at is None else f" ends at {time_text(session.expires_at)}, and"
    has = f"{session.id} has {more} s more, {session.max_duration_seconds} s in all"
    text = f"{has},{ends} costs at most {session.hold_micro_usdc.usdc} USDC in all"
    print_value(session, as_json, text)


@app.command(rich_help_panel=PANEL)
def tell(
    session_id: SessionId,
    text: Annotated[list[str], typer.Argument(help="One line of at most 200 characters, such as: turn left.")],
    api: Url = None,
    as_json: AsJson = False,
) -> None:
    """Tell the operator of a LIVE session something. It costs nothing.

    `sightline sessions ID` says whether it was shown. A device can say so until the session ends.
    """
    with one_line_errors(as_json=as_json, session_id=session_id), client(api, needs_key=True) as sl:
        session = sl.sessions.message(session_id, " ".join(text))
    sent = session.messages[-1]
    if not as_json:
        typer.echo(f"`sightline sessions {session_id}` says whether it was shown.", err=True)
    print_value(sent, as_json, f"Message {sent.number}: {sent.text}")


@app.command(rich_help_panel=PANEL)
def end(session_id: SessionId, api: Url = None, as_json: AsJson = False) -> None:
    """End a session, or cancel it if it has no operator yet. A session that is over is printed as it is."""
    with one_line_errors(as_json=as_json, session_id=session_id), client(api, needs_key=True) as sl:
        session = _end(sl, session_id)
    print_value(session, as_json, f"{session.state}, {session.clean_seconds} s, {session.charged_micro_usdc.usdc} USDC")
