"""When frames() fetches: a period lies between two frames, however long the first one took."""

import itertools

import httpx2
import pytest

from sightline_client import NO_RETRY, Sightline
from sightline_client._sync import frames as sync_frames
from sightline_client.models import Session

SESSION_ID = "3fe8a2b0-1c1f-4a6e-9d61-0c9a8d7e6f50"
FRAME = {
    "x-svc-frame-captured-at": "2026-11-26T01:00:00Z",
    "x-svc-frame-age-ms": "40",
    "x-svc-frame-width": "640",
    "x-svc-frame-height": "360",
    "x-svc-frame-state": "live",
    "x-svc-meter-state": "RUNNING",
    "x-svc-in-geofence": "unknown",
    "x-svc-location": "unknown",
}


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic_s(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def test_each_two_frames_are_a_period_apart_also_the_first_two(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, takes_s, sequence = Clock(), iter([0.9, 0.05, 0.05, 3.0, 0.05]), itertools.count(1)
    monkeypatch.setattr(sync_frames, "monotonic_s", clock.monotonic_s)
    monkeypatch.setattr(sync_frames, "sync_sleep", clock.sleep)

    def answer(request: httpx2.Request) -> httpx2.Response:
        assert request.url.path == f"/api/v1/sessions/{SESSION_ID}/frame"
        clock.sleep(next(takes_s))  # as a server does that waits for the next picture
        return httpx2.Response(200, content=b"jpeg", headers=FRAME | {"x-svc-frame-sequence": str(next(sequence))})

    with httpx2.Client(transport=httpx2.MockTransport(answer)) as http:
        sl = Sightline("http://127.0.0.1:9", "svc_test_000000_" + "A" * 43, http=http, retry=NO_RETRY)
        view = sl.view(1, 2)
        view._session = Session.model_construct(id=SESSION_ID)
        at_s = [clock.now_s for _ in itertools.islice(view.frames(fps=1), 5)]
    gaps = [round(later - sooner, 3) for sooner, later in itertools.pairwise(at_s)]
    assert gaps == [1.05, 1.0, 3.95, 1.05]
