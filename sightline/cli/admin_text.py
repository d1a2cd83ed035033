"""What `sightline admin` prints for people: tables of sessions and workspaces, and a session by which to judge."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from sightline.cli.tables import table_of
from sightline_client.commands.printing import delivery_text, pause_text, time_text
from sightline_client.models import Delivery
from sightline_client.money import MicroUsdc
from sightline_client.wording import ENDED

OVER: Final = frozenset({"ENDED", "CANCELLED", "EXPIRED"})
SHOWN_BELOW: Final = frozenset({"session.note", "session.refund"})
"""Acts with a list of their own: of these only what was not done is among the acts."""
WIDTH: Final = 14
"""Width of the column of names."""
REOPENED: Final = {
    "DECLINED": "the operator declined",
    "NOT_ACKNOWLEDGED": "the operator's device did not answer",
    "START_TIMEOUT": "the operator did not start in time",
}


def usdc(micro: str | int) -> str:
    """An amount of the interface, in micro-USDC, as USDC."""
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
    """List workspaces with their suspensions, and until when operators are passed over for no-shows."""
    table = table_of("slug", "id", "roles", "availability", "passed over until", "last seen", "suspended")
    table.columns[0].no_wrap = True  # it is copied into the next command
    for each in found:
        suspension = each["suspension"]
        since = "" if suspension is None else f"{_time(suspension['at'])}, {_said(suspension, 'reason')}"
        roles = ", ".join(role.lower() for role in each["roles"])
        availability = each["availabilityState"] if "SUPPLIER" in each["roles"] else ""
        until, seen = _time(each["passedOverUntil"]), _time(each["lastSeenAt"])
        table.add_row(each["slug"], each["id"], roles, availability, until, seen, Text(since))
    return table


def keys_table(found: Sequence[Mapping[str, Any]]) -> Table:
    """List the API keys of a workspace."""
    table = table_of("id", "label", "scopes", "created", "last used", "revoked", "ends")
    table.columns[0].no_wrap = True  # it is copied into the next command
    for each in found:
        times = (each["createdAt"], each["lastUsedAt"], each["revokedAt"], each["gracePeriodEnd"] or each["expiresAt"])
        table.add_row(each["keyId"], Text(_plain(each["label"])), ", ".join(each["scopes"]), *map(_time, times))
    return table


def found_lines(key: Mapping[str, Any]) -> Iterator[str]:
    """Describe a key and its owner, with the command that revokes it."""
    yield _named("workspace", key["workspaceId"])
    yield _named("key", f"{key['keyId']} {_plain(key['label'])}")
    yield _named("scopes", ", ".join(key["scopes"]))
    yield _named("created", f"{_time(key['createdAt'])} by {key['createdByWallet']}")
    yield _named("last used", _time(key["lastUsedAt"]) or "never")
    ends = key["gracePeriodEnd"] or key["expiresAt"]
    if ends is not None:
        yield _named("ends", _time(ends))
    if key["revokedAt"] is None:
        yield f"To revoke it: sightline admin revoke-key {key['workspaceId']} {key['keyId']} --as NAME --reason WHY"


def revoked_lines(workspace: str, key: Mapping[str, Any]) -> Iterator[str]:
    """Say when a key was revoked, and when it stops working."""
    revoked, ends = _time(key["revokedAt"]), _time(key["gracePeriodEnd"])
    yield f"Key {key['keyId']} of {workspace} was revoked at {revoked}. It stops working at {ends}."


def _are_missing_together(windows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether position and video were missing at the same time."""
    spans = {
        reason: [(each["from"], each["to"] or "~") for each in windows if each["reason"] == reason]
        for reason in ("LOCATION_STALE", "MEDIA_LOST")
    }
    return any(
        start < other_end and other_start < end
        for start, end in spans["LOCATION_STALE"]
        for other_start, other_end in spans["MEDIA_LOST"]
    )


def ended_lines(session: Mapping[str, Any]) -> Iterator[str]:
    """Say what the end of a session by an administrator did."""
    yield (
        f"Session {session['id']} is {session['state']}: {session['cleanSeconds']} s and {_charge(session)} USDC are "
        "charged."
    )


def suspended_lines(workspace: str, done: Mapping[str, Any]) -> Iterator[str]:
    """Say what a suspension did, or which one there was already."""
    if done["wasSuspended"]:
        first = done["suspension"]
        yield (
            f"{workspace} was suspended already, at {_time(first['at'])} by {_said(first, 'reason')}. "
            "That stays; the reason of now is in the audit log only."
        )
        yield "To change the reason, unsuspend it and suspend it again."
    else:
        yield f"{workspace} is suspended."
    for session_id in done["endedSessions"]:
        yield f"Its session {session_id} was ended."


def unsuspended_lines(workspace: str, done: Mapping[str, Any]) -> Iterator[str]:
    """Say what the end of a suspension did, and what an operator has to do."""
    if not done["wasSuspended"]:
        yield f"{workspace} was not suspended: nothing has changed."
        return
    yield f"Calls of {workspace} are accepted."
    if done["isOperator"]:
        yield (
            "An operator stays OFFLINE until it goes ONLINE again in the console; a `sightline device --online` that "
            "runs does so by itself."
        )


def refund_lines(refund: Mapping[str, Any], *, is_repeat: bool) -> Iterator[str]:
    """Say what a refund did, and how a further one of the session is made."""
    yield f"{_refunded(refund)}. {_refund_state(refund)}"
    key = _plain(refund["key"])
    if is_repeat:
        yield f"This was asked for at {_time(refund['at'])} already, with --key {key}: nothing more was paid now."
    else:
        yield f"Its --key is {key}: the same command again pays nothing more."
    yield "For a further refund of this session, add --key with another name."


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
    yield _named("agreed", f"at most {session['maxDurationSeconds']} s at {rate} USDC a second, {hold} USDC in all")
    yield _named("charge", f"{session['cleanSeconds']} s{_live_for(session)}, {_charge(session)} USDC")
    if session["startedAt"] is not None:
        yield _named("pictures", _delivery(session["delivery"]))
    yield from _settlement_lines(session["settlement"])
    yield "events"
    for event in session["events"]:
        yield f"  {_time_ms(event['atMs'])}  {_event_text(event, session['messagesShown'])}"
    if session["meter"]["windows"]:
        yield "not charged"
        for window in session["meter"]["windows"]:
            until = "now" if window["to"] is None else _time(window["to"])
            yield f"  {_time(window['from'])}  until {until}: {pause_text(window['reason'])}"
        if _are_missing_together(session["meter"]["windows"]):
            yield "  Both together: the device, its network, or this server was away; the server's log has its starts."
    acts = [act for act in session["acts"] if act["outcome"] != "DONE" or act["action"] not in SHOWN_BELOW]
    if acts:
        yield "administrators"
        for act in acts:
            yield f"  {_time(act['at'])}  {_act_text(act)}"
    if session["notes"]:
        yield "notes"
        for note in session["notes"]:
            yield f"  {_time(note['at'])}  {_said(note, 'text')}"
    if session["refunds"]:
        yield "refunds"
        for refund in session["refunds"]:
            named = f"{_plain(refund['key'])}, {_said(refund, 'reason')}"
            yield f"  {_time(refund['at'])}  {_refunded(refund)}, {refund['state']} ({named})"


def _said(written: Mapping[str, Any], name: str) -> str:
    """What somebody wrote, after who it was."""
    return f"{_plain(written['actor'])}: {_plain(written[name])}"


def _act_text(act: Mapping[str, Any]) -> str:
    """An act of the audit log: what was done with which outcome, by whom and why."""
    actor, reason = act["actor"], act["reason"]
    if act["action"].startswith(("session.", "workspace.")):  # the name that was given by --as is before the reason
        name, _, reason = reason.partition(": ")
        actor = f"{name} ({actor})"
    outcome = "interrupted, look at the state" if act["outcome"] == "REQUESTED" else act["outcome"]
    return f"{act['action']}, {outcome}, {_plain(actor)}: {_plain(reason)}"


def _delivery(delivery: Mapping[str, Any] | None) -> str:
    return delivery_text(None if delivery is None else Delivery.model_validate(delivery))


def _live_for(session: Mapping[str, Any]) -> str:
    """How long a session that has ended was live, beside what of it is charged."""
    if session["startedAt"] is None or session["endedAt"] is None:
        return ""
    lasted = datetime.fromisoformat(session["endedAt"]) - datetime.fromisoformat(session["startedAt"])
    return f" of the {lasted.total_seconds():.0f} s for which it was live"


def _named(name: str, value: str) -> str:
    return f"{name:{WIDTH}}{value}"


def _settlement_lines(settlement: Mapping[str, Any]) -> Iterator[str]:
    payload = settlement["payload"]
    if payload is None:
        return
    amounts = f"{usdc(payload['toAmount'])} USDC to {payload['to']}, {usdc(payload['feeAmount'])} USDC as fee"
    where = "" if settlement["txHash"] is None else f", in {settlement['txHash']}"
    yield _named("payment", f"{settlement['state']}: {amounts}{where}")
    if settlement["reason"]:
        tries = "" if settlement["state"] == "WRITTEN_OFF" else f" (tries: {settlement['tries']})"
        yield _named("", f"{_plain(settlement['reason'])}{tries}")
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
