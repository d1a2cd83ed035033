"""A session as a JSON-ready document, and back. What is stored is what `to_doc` says; `from_doc` reads every version
of it that was ever written."""

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias, assert_never

from msgspec.structs import asdict

from sightline.domain.escrow import ConsentKind, ExactTransfer, PayerConsent, SignedMandate
from sightline.domain.geofence import DeviceKind, Fence, Fix, Track
from sightline.domain.metering import Evidence, FenceWindow, PauseReason, Signal, Window
from sightline.domain.session.model import (
    Assigned,
    Closed,
    ConsumerMessage,
    Delivery,
    Ended,
    EndReason,
    Live,
    LocationState,
    Operator,
    Phase,
    Requested,
    Session,
    SessionExtension,
    SessionState,
    Terms,
    VideoInput,
)
from sightline.domain.units import MicroUsdc
from sightline.domain.value import replace

Doc: TypeAlias = dict[str, Any]


def to_doc(session: Session) -> Doc:
    """Everything of the session but its version, which is a column of its own."""
    return {
        "terms": _terms_doc(session.terms),
        "phase": _phase_doc(session.phase),
        "head_hash": session.head_hash,
        "events": session.events,
        "ended_head_hash": session.ended_head_hash,
    } | _later_doc(session)


def _later_doc(session: Session) -> Doc:
    """What later versions added, where there is any. Servers of earlier versions do not read it."""
    doc: Doc = {}
    if session.extensions:
        doc["extensions"] = [_extension_doc(extension) for extension in session.extensions]
    if session.extending is not None:
        doc["extending"] = _extension_doc(session.extending)
    if session.messages_shown:
        doc["messages_shown"] = session.messages_shown
    if session.delivery is not None:
        doc["delivery"] = asdict(session.delivery)
    if isinstance(session.phase, Ended) and session.phase.messages:
        # Not in the phase: servers of earlier versions refuse an unknown field there.
        doc |= {"ended_messages": _messages_doc(session.phase)["messages"]}
    return doc if session.ended_by is None else {**doc, "ended_by": session.ended_by}


def _extension_doc(extension: SessionExtension) -> Doc:
    return {**asdict(extension), "consent": consent_doc(extension.consent)}


def _extension(doc: Mapping[str, Any]) -> SessionExtension:
    return SessionExtension(**{**doc, "amount": MicroUsdc(doc["amount"]), "consent": consent_of(doc["consent"])})


def from_doc(doc: Mapping[str, Any], version: int) -> Session:
    """The session of a stored document."""
    terms = doc["terms"]
    return Session(
        terms=Terms(
            **{
                **terms,
                "rate": MicroUsdc(terms["rate"]),
                "hold": MicroUsdc(terms["hold"]),
                "consent": consent_of(terms.get("consent")),
            }
        ),
        phase=_phase(doc["phase"], doc.get("ended_messages", ())),
        version=version,
        head_hash=doc["head_hash"],
        events=doc["events"],
        ended_head_hash=doc.get("ended_head_hash"),
        extensions=tuple(_extension(each) for each in doc.get("extensions", ())),
        extending=_extension(doc["extending"]) if "extending" in doc else None,
        ended_by=doc.get("ended_by"),
        messages_shown=doc.get("messages_shown", 0),
        delivery=Delivery(**doc["delivery"]) if "delivery" in doc else None,
    )


def _terms_doc(terms: Terms) -> Doc:
    """The terms as a document. Servers of earlier versions do not know a consent, and read documents without one."""
    doc = asdict(terms)
    if terms.consent is None:
        del doc["consent"]
    else:
        doc["consent"] = consent_doc(terms.consent)
    return doc


def consent_doc(consent: PayerConsent | None) -> Doc | None:
    """A payer's consent as a document."""
    if consent is None:
        return None
    mandate, exact = consent.mandate, consent.exact
    doc = {**asdict(consent), "mandate": None if mandate is None else mandate_doc(mandate)}
    del doc["exact"]
    return doc if exact is None else {**doc, "exact": asdict(exact)}


def mandate_doc(mandate: SignedMandate) -> Doc:
    """A mandate as a document."""
    return asdict(mandate)


def mandate_of(doc: Mapping[str, Any]) -> SignedMandate:
    """The mandate of a document."""
    return SignedMandate(**doc)


def consent_of(doc: Mapping[str, Any] | None) -> PayerConsent | None:
    """The payer's consent of a document."""
    if doc is None:
        return None
    mandate = None if doc["mandate"] is None else mandate_of(doc["mandate"])
    exact = None if "exact" not in doc else ExactTransfer(**doc["exact"])
    return PayerConsent(**{**doc, "kind": ConsentKind(doc["kind"]), "mandate": mandate, "exact": exact})


def _phase_doc(phase: Phase) -> Doc:
    match phase:
        case Requested():
            return {"is": "requested", **asdict(phase)}
        case Assigned():
            return {
                "is": "assigned",
                "operator": asdict(phase.operator),
                "assigned_at_ms": phase.assigned_at_ms,
                "start_deadline_ms": phase.start_deadline_ms,
                "is_dispatched": phase.is_dispatched,
                "wait_left_ms": phase.wait_left_ms,
                "unstarted_by": phase.unstarted_by,
            } | ({} if phase.funding_at_ms is None else {"funding_at_ms": phase.funding_at_ms})
        case Live():
            return (
                {
                    "is": "live",
                    "operator": asdict(phase.operator),
                    "assigned_at_ms": phase.assigned_at_ms,
                    "started_at_ms": phase.started_at_ms,
                    "ends_at_ms": phase.ends_at_ms,
                    "video": asdict(phase.video),
                    "evidence": _evidence_doc(phase.evidence),
                    "whereabouts": _location_doc(phase.location),
                    "pause_reason": phase.pause_reason,
                    "consumer_seen_ms": phase.consumer_seen_ms,
                }
                | _hold_doc(phase)
                | _messages_doc(phase)
            )
        case Ended():
            fields = asdict(phase)
            del fields["hold_tx_hash"], fields["messages"]
            return {
                "is": "ended",
                **fields,
                "operator": asdict(phase.operator),
                "windows": [_window_doc(window) for window in phase.windows],
            } | _hold_doc(phase)
        case Closed():
            operator = None if phase.operator is None else asdict(phase.operator)
            return {"is": "closed", **asdict(phase), "operator": operator}
        case _:
            assert_never(phase)


def _hold_doc(phase: Live | Ended) -> Doc:
    """The hold of a phase. Servers of earlier versions read documents without one."""
    return {} if phase.hold_tx_hash is None else {"hold_tx_hash": phase.hold_tx_hash}


def _messages_doc(phase: Live | Ended) -> Doc:
    return {"messages": [asdict(message) for message in phase.messages]} if phase.messages else {}


def _messages(docs: Iterable[Mapping[str, Any]]) -> tuple[ConsumerMessage, ...]:
    return tuple(ConsumerMessage(**message) for message in docs)


def _phase(doc: Mapping[str, Any], ended_messages: Iterable[Mapping[str, Any]]) -> Phase:
    fields = {key: value for key, value in doc.items() if key != "is"}
    if "unstarted_by" in fields:
        fields["unstarted_by"] = tuple(fields["unstarted_by"])
    if doc["is"] == "requested":
        return Requested(**fields)
    operator = _operator(doc["operator"])
    match doc["is"]:
        case "assigned":
            return Assigned(**{**fields, "operator": operator})
        case "live":
            location = _location(fields.pop("whereabouts"))
            return Live(
                **{
                    **fields,
                    "operator": operator,
                    "video": VideoInput(**doc["video"]),
                    "evidence": _evidence(doc["evidence"]),
                    "location": location,
                    "pause_reason": PauseReason(doc["pause_reason"]) if doc["pause_reason"] else None,
                    "messages": _messages(doc.get("messages", ())),
                }
            )
        case "ended":
            windows = tuple(_window(window) for window in doc["windows"])
            ended = Ended(**{**fields, "operator": operator, "windows": windows, "reason": EndReason(doc["reason"])})
            return replace(ended, charged=MicroUsdc(ended.charged), messages=_messages(ended_messages))
        case "closed":
            state, reason = SessionState(doc["state"]), EndReason(doc["reason"])
            return Closed(**{**fields, "operator": operator, "state": state, "reason": reason})
        case other:
            raise ValueError(f"unknown phase {other!r} in a stored session")


def _operator(doc: Mapping[str, Any] | None) -> Any:
    return None if doc is None else Operator(**{**doc, "device_kind": DeviceKind(doc["device_kind"])})


def _evidence_doc(evidence: Evidence) -> Doc:
    return {
        **asdict(evidence),
        "presence": asdict(evidence.presence),
        "media": asdict(evidence.media),
        "fence_windows": [list(window) for window in evidence.fence_windows],
    }


def _location_doc(location: LocationState) -> Doc:
    track, last_fix = location.track, location.last_fix
    return {
        **asdict(location),
        "fence": asdict(location.fence),
        "track": {
            "adopted": None if track.adopted is None else asdict(track.adopted),
            "suspects": [asdict(fix) for fix in track.suspects],
        },
        "last_fix": None if last_fix is None else asdict(last_fix),
    }


def _window_doc(window: Window) -> list[object]:
    return [window.from_ms, window.to_ms, window.reason]


def _window(doc: list[Any]) -> Window:
    return Window(doc[0], doc[1], PauseReason(doc[2]))


def _signal(doc: Mapping[str, Any]) -> Signal:
    return Signal(runs=tuple((first, last) for first, last in doc["runs"]), breaks=tuple(doc["breaks"]))


def _evidence(doc: Mapping[str, Any]) -> Evidence:
    return Evidence(
        started_at_ms=doc["started_at_ms"],
        presence=_signal(doc["presence"]),
        media=_signal(doc["media"]),
        fence_windows=tuple(_fence_window(row) for row in doc["fence_windows"]),
        first_outside_ms=doc["first_outside_ms"],
    )


def _fence_window(row: list[int]) -> FenceWindow:
    """Read a fence window. An older row has no `opened_ms`: its window counts as opened at its start."""
    from_ms, to_ms, *opened_ms = row
    return FenceWindow(from_ms, to_ms, *(opened_ms or [from_ms]))


def _fix(doc: Mapping[str, Any] | None) -> Fix | None:
    return None if doc is None else Fix(**doc)


def _location(doc: Mapping[str, Any]) -> LocationState:
    suspects = tuple(Fix(**fix) for fix in doc["track"]["suspects"])
    return LocationState(
        **{
            **doc,
            "fence": Fence(**doc["fence"]),
            "device_kind": DeviceKind(doc["device_kind"]),
            "track": Track(adopted=_fix(doc["track"]["adopted"]), suspects=suspects),
            "last_fix": _fix(doc["last_fix"]),
        }
    )
