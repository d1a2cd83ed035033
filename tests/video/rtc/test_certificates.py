"""A worker's DTLS certificate is renewed before it expires."""

from dataclasses import dataclass

from sightline.system.clock import SystemClock
from sightline.video.rtc.peer import CERTIFICATE_RENEW, Certificates


@dataclass
class HandClock:
    """A clock that changes only when the test sets it."""

    at_ms: int

    def now_ms(self) -> int:
        return self.at_ms


def test_a_certificate_serves_until_ten_days_before_it_expires():
    clock = HandClock(SystemClock().now_ms())
    certificates = Certificates(clock)
    first = certificates.current()
    renewed_from_ms = int((first.expires - CERTIFICATE_RENEW).timestamp() * 1000)
    clock.at_ms = renewed_from_ms - 1_000
    assert certificates.current() is first
    clock.at_ms = renewed_from_ms + 1_000
    assert certificates.current() is not first
