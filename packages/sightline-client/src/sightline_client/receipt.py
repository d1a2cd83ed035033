"""The receipt of a session, and its verification by the meter's own figures."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sightline_client.errors import ReceiptError
from sightline_client.models import Meter, Session, Settlement
from sightline_client.money import MicroUsdc

BASIS_POINTS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Receipt:
    """What was metered, charged and paid."""

    session: Session
    meter: Meter
    settlement: Settlement

    @property
    def seconds(self) -> int:
        """Seconds that are charged."""
        return self.session.clean_seconds

    @property
    def charged(self) -> MicroUsdc:
        """The charge."""
        return self.session.charged_micro_usdc

    @property
    def tx_hash(self) -> str | None:
        """The transaction that paid; None for a session that is not settled."""
        return self.settlement.tx_hash

    def verify(self) -> None:
        """Compute the charge from the meter's windows, and compare it with session and settlement.

        Raises:
            ReceiptError: Two figures differ; the message has both.
        """
        seconds = clean_seconds(self.meter, self.session.max_duration_seconds)
        charge = seconds * self.session.rate_per_second_micro_usdc
        _require("clean seconds", self.session.clean_seconds, seconds)
        _require("charge", int(self.session.charged_micro_usdc), int(charge))
        _require("charge within the hold", charge <= self.session.hold_micro_usdc, True)
        payload = self.settlement.payload
        if payload is None:
            _require("charge of a session that is not settled", int(self.session.charged_micro_usdc), 0)
            return
        fee = charge * self.session.platform_fee_bps // BASIS_POINTS
        _require("fee", int(payload.fee_amount), fee)
        _require("paid to the operator", int(payload.to_amount), charge - fee)
        _require("seconds of the settlement", payload.chargeable_seconds, seconds)


def clean_seconds(meter: Meter, max_duration_s: int) -> int:
    """Count the whole seconds between start and end that are in no window, at most the session's duration."""
    if meter.started_at is None or meter.ended_at is None:
        return 0
    start, end = _ms(meter.started_at), _ms(meter.ended_at)
    dirty, covered_to = 0, start
    for window in sorted(meter.windows, key=lambda window: window.from_):
        begin, stop = max(_ms(window.from_), covered_to), end if window.to is None else _ms(window.to)
        dirty += max(0, stop - begin)
        covered_to = max(covered_to, stop)
    return min(max_duration_s, max(0, end - start - dirty) // 1000)


def _ms(instant: datetime) -> int:
    return round(instant.timestamp() * 1000)


def _require(what: str, shown: object, computed: object) -> None:
    if shown != computed:
        raise ReceiptError(f"{what}: the server shows {shown}, the meter's windows give {computed}. Keep the receipt.")
