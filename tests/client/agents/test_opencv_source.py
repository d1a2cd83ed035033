"""A view that is read like cv2.VideoCapture."""

from typing import Any

import pytest

from sightline_client import MaxChargeError, Sightline
from sightline_client.opencv import CAP_PROP_FRAME_HEIGHT, CAP_PROP_FRAME_WIDTH, VideoCapture


def test_pictures_are_read_until_release_ends_the_session(dev: dict[str, Any]) -> None:
    with Sightline(dev["url"], dev["consumerKey"]) as sl:
        capture = VideoCapture(sl.view(dev["lat"], dev["lng"], seconds=60), width=320)
        sequences = []
        for _ in range(3):
            ok, picture = capture.read()
            assert ok
            assert picture is not None
            assert capture.frame is not None
            sequences.append(capture.frame.sequence)
            assert picture.shape[1:] == (320, 3)
            size = (capture.get(CAP_PROP_FRAME_HEIGHT), capture.get(CAP_PROP_FRAME_WIDTH))
            assert size == picture.shape[:2]
        assert sequences == sorted(set(sequences)), "each picture once"
        assert (capture.isOpened(), capture.get(5)) == (True, 0.0)
        capture.release()
        assert (capture.isOpened(), capture.read()) == (False, (False, None))
        capture.release()
        assert sl.sessions.get(capture.view.session.id).state == "ENDED"


def test_reading_stops_when_the_session_is_over(dev: dict[str, Any]) -> None:
    with Sightline(dev["url"], dev["consumerKey"]) as sl:
        with VideoCapture(sl.view(dev["lat"], dev["lng"], seconds=60)) as capture:
            assert capture.read()[0]
            sl.sessions.end(capture.view.session.id)
            while capture.isOpened():
                capture.read()
            assert capture.read() == (False, None)
        assert capture.view.session.end_reason == "CONSUMER_ENDED"


def test_a_view_that_is_too_expensive_requests_nothing(dev: dict[str, Any]) -> None:
    with Sightline(dev["url"], dev["consumerKey"]) as sl:
        before = sl.sessions.page(view="consumer", limit=1).items
        with pytest.raises(MaxChargeError):
            VideoCapture(sl.view(dev["lat"], dev["lng"], seconds=60, max_charge=1))
        assert [each.id for each in sl.sessions.page(view="consumer", limit=1).items] == [each.id for each in before]
