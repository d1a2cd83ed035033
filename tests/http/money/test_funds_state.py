"""Where the amount of a session in escrow is, as the API says it."""

import pytest

from sightline.domain.escrow import ConsentKind, PayerConsent
from sightline.domain.session.model import SessionState
from sightline.domain.session.status import SessionStatus
from sightline.domain.value import replace
from sightline.http.schemas.sessions import session_json
from tests.contract.builders import a_session

CONSENT = PayerConsent(kind=ConsentKind.CONSENT, open_by_s=1, signature="0x01")


@pytest.mark.parametrize(
    ("state", "assigned_at_ms", "hold_tx_hash", "settlement_tx_hash", "shown"),
    [
        (SessionState.REQUESTED, None, None, None, "RESERVED"),
        (SessionState.ASSIGNED, 1, None, None, "RESERVED"),
        (SessionState.LIVE, 1, "0x1", None, "HELD"),
        (SessionState.ENDED, 1, "0x1", "0x2", "SETTLED"),
        (SessionState.CANCELLED, None, None, None, "RELEASED"),
        (SessionState.EXPIRED, None, None, None, "RELEASED"),
        # A hold may have been asked for, and may still be mined.
        (SessionState.EXPIRED, 1, None, None, "RESERVED"),
        (SessionState.EXPIRED, 1, None, "0x2", "SETTLED"),
    ],
)
def test_an_amount_is_released_only_where_no_hold_can_have_been_opened(
    state: SessionState,
    assigned_at_ms: int | None,
    hold_tx_hash: str | None,
    settlement_tx_hash: str | None,
    shown: str,
) -> None:
    terms = replace(a_session().terms, consent=CONSENT)
    status = SessionStatus(terms, state, None, None, None, assigned_at_ms)
    status = replace(status, hold_tx_hash=hold_tx_hash, settlement_tx_hash=settlement_tx_hash)
    assert session_json(status)["fundsState"] == shown
