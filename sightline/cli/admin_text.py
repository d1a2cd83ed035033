"""What `sightline admin` prints for people: tables of sessions and workspaces, and a session by which to judge."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from sightline.cli.tables import table_of
from sightline_client.commands.printing import pause_text, time_text
from sightline_client.money import MicroUsdc
from sightline_client.wording import ENDED

OVER: Final = frozenset({"ENDED", "CANCELLED", "EXPIRED"})
WIDTH: Final = 14
"""Width of the column of names."""
REOPENED: Final = {
    "DECLINED": "the operator declined",
    "NOT_ACKNOWLEDGED": "the operator's device did not answer",
    "START_TIMEOUT": "the operator did not start in time",
}


def usdc(micro: str) -> str:
    """An amount of the interface in USDC."""
    return f"{MicroUsdc(int(micro)).usdc:f}"


def _time(instant: str | None) -> str:
    return "" if instant is None else time_text(datetime.fromisoformat(instant))


def _time_ms(at_ms: int) -> str:
    return time_text(datetime.fromtimestamp(at_ms / 1_000, UTC))


def _plain(text: str) -> str:
    """A text that somebody wrote, without what a terminal would act on. Its other lines are below the first."""
    lines = ["".join(each if each.isprintable() else "?" for each in line) for line in text.splitlines()]
    return f"\n{'':{WIDTH}}".join(lines)


def _charge(session: Mapping[str, Any]) -> str:
    """The charge of a session that is over, and the cost so far of another."""
    return usdc(session["chargedMicroUsdc"] if session["state"] in OVER else session["accruedMicroUsdc"])


def _why_over(session: Mapping[str, Any]) -> str:
    reason = session["endReason"]
    return "" if reason is None else ENDED.get(reason, reason)


def sessions_table(found: Sequence[Mapping[str, Any]]) -> Table:
    """List sessions of all workspaces."""
    titles = ("id", "state", "consumer", "operator", "created", "charge in USDC", "why it is over")
    table = table_of(*titles, right={"charge in USDC"})
    table.columns[0].no_wrap = True  # it is copied into the next command
    for each in found:
        sides = (each["consumerSlug"] or "", each["operatorSlug"] or "")
        table.add_row(
            each["id"], each["state"], *sides, _time(each["createdAt"]), _charge(each), _why_over(each)
        )  # fmt: skip
    return table


def workspaces_table(found: Sequence[Mapping[str, Any]]) -> Table:
    """List workspaces with their suspensions."""
    table = table_of("slug", "id", "roles", "availability", "last seen", "suspended")
    table.columns[0].no_wrap = True  # it is copied into the next command
    for each in found:
        suspension = each["suspension"]
        since = "" if suspension is None else f"{_time(suspension['at'])}: {_plain(suspension['reason'])}"
        roles = ", ".join(role.lower() for role in each["roles"])
        availability = each["availabilityState"] if "SUPPLIER" in each["roles"] else ""
        table.add_row(each["slug"], each["id"], roles, availability, _time(each["lastSeenAt"]), Text(since))
    return table


def ended_lines(session: Mapping[str, Any]) -> Iterator[str]:
    """Say what the end of a session by an administrator did."""
    yield (
        f"Session {session['id']} is {session['state']}: {session['cleanSeconds']} s and {_charge(session)} USDC are "
        "charged."
    )


def refund_lines(refund: Mapping[str, Any]) -> Iterator[str]:
    """Say what a refund did, and how a further one of the session is made."""
    yield f"{_refunded(refund)}. {_refund_state(refund)}"
    yield (
        f"This is the refund {_plain(refund['key'])} of the session: the same command again pays nothing more. For a "
        "further refund of this session, add --key with another name."
    )


def _refunded(refund: Mapping[str, Any]) -> str:
    return f"{usdc(refund['amountMicroUsdc'])} USDC to {refund['to']} in {refund['txHash']}"


def _refund_state(refund: Mapping[str, Any]) -> str:
    match refund["state"]:
        case "SENT":
            return "It is sent, and not mined yet: the server goes on with it."
        case "FAILED":
            return "It FAILED: nothing was paid."
        case _:
            return "It is mined."


def session_lines(session: Mapping[str, Any]) -> Iterator[str]:
    """Show a session, its events in order, and what administrators did."""
    why = _why_over(session)
    yield _named("session", session["id"])
    yield _named("state", f"{session['state']}{f': {why}' if why else ''}")
    by = session["endedBy"]
    if by is not None:
        yield _named("ended by", f"{'the API key' if by['kind'] == 'API_KEY' else 'the wallet'} {by['id']}")
    for name in ("consumer", "operator"):
        workspace_id = session[f"{name}WorkspaceId"]
        if workspace_id is not None:
            yield _named(name, f"{session[f'{name}Slug'] or ''} {workspace_id}".lstrip())
    yield _named("payer", session["payerAddress"])
    yield _named("place", f"{session['lat']} {session['lng']}, within {session['radiusMeters']} m")
    if session["instructions"]:
        yield _named("instructions", _plain(session["instructions"]))
    rate, hold = usdc(session["ratePerSecondMicroUsdc"]), usdc(session["holdMicroUsdc"])
    yield _named("agreed", f"at most {session['maxDurationSeconds']} s at {rate} USDC, {hold} USDC in all")
    yield _named("charge", f"{session['cleanSeconds']} s, {_charge(session)} USDC")
    yield from _settlement_lines(session["settlement"])
    yield "events"
    for event in session["events"]:
        yield f"  {_time_ms(event['atMs'])}  {_event_text(event, session['messagesShown'])}"
    if session["meter"]["windows"]:
        yield "not charged"
        for window in session["meter"]["windows"]:
            until = "now" if window["to"] is None else _time(window["to"])
            yield f"  {_time(window['from'])}  until {until}: {pause_text(window['reason'])}"
    if session["notes"]:
        yield "notes"
        for note in session["notes"]:
            yield f"  {_time(note['at'])}  {note['actor']}: {_plain(note['text'])}"
    if session["refunds"]:
        yield "refunds"
        for refund in session["refunds"]:
            named = f"{_plain(refund['key'])}, {refund['actor']}, {_plain(refund['reason'])}"
            yield f"  {_time(refund['at'])}  {_refunded(refund)}, {refund['state']} ({named})"


def _named(name: str, value: str) -> str:
    return f"{name:{WIDTH}}{value}"


def _settlement_lines(settlement: Mapping[str, Any]) -> Iterator[str]:
    payload = settlement["payload"]
    if payload is None:
        return
    amounts = f"{usdc(payload['toAmount'])} USDC to {payload['to']}, {usdc(payload['feeAmount'])} USDC as fee"
    where = "" if settlement["txHash"] is None else f", in {settlement['txHash']}"
    yield _named("payment", f"{settlement['state']}: {amounts}{where}")
    if settlement["mismatched"]:
        yield _named("", "The chain settled these amounts, which differ from what the database asked for.")


def _event_text(event: Mapping[str, Any], messages_shown: int) -> str:
    """An event with those of its facts that are not above already."""
    facts = {fact["name"]: fact["value"] for fact in event["facts"]}
    match event["kind"]:
        case "CREATED":
            said = f"at most {facts['maxDurationSeconds']} s, {usdc(facts['holdMicroUsdc'])} USDC"
        case "ASSIGNED":
            said = f"to {facts['operatorWorkspaceId']}"
        case "STARTED":
            said = f"the hold was taken in {facts['holdTxHash']}" if "holdTxHash" in facts else ""
        case "SETTLED":
            said = f"in {facts['txHash']}"
        case "REOPENED":
            said = f"{REOPENED.get(facts['reason'], facts['reason'])} ({facts['operatorWorkspaceId']})"
        case "PAUSED":
            said = f"from {_time_ms(facts['fromMs'])}, {pause_text(facts['reason'])}"
        case "EXTENDED":
            said = f"by {facts['seconds']} s to {facts['maxDurationSeconds']} s, {usdc(facts['holdMicroUsdc'])} USDC"
        case "MESSAGE":
            is_shown = facts["number"] <= messages_shown
            shown = "the operator's device has shown it" if is_shown else "not known to be shown"
            said = f"{facts['number']}, {shown}: {_plain(facts['text'])}"
        case "ENDED" | "CANCELLED" | "EXPIRED":
            said = ENDED.get(facts["reason"], facts["reason"])
        case _:
            said = ", ".join(f"{name} {value}" for name, value in facts.items() if value is not None)
    return f"{event['kind']:<9}  {said}".rstrip()
