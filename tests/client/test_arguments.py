"""Arguments that cannot work are refused at once, and no message shows a secret."""

import socket
import traceback
from collections.abc import Iterator

import httpx2
import pytest

from sightline_client import (
    NO_RETRY,
    AsyncSightline,
    InvalidArgumentError,
    OutcomeUnknownError,
    Sightline,
    SightlineError,
)

KEY = "svc_test_000000_" + "A" * 43


@pytest.fixture
def silent_url() -> Iterator[str]:
    """URL of a port that accepts connections and answers nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.parametrize("key", [KEY + "\n", f"  {KEY}\r\n"])
def test_whitespace_around_a_key_is_removed(key: str) -> None:
    assert AsyncSightline(key=key).transport.headers == {"authorization": f"Bearer {KEY}"}


@pytest.mark.parametrize("key", ["", " \n"])
def test_an_empty_key_is_no_key(key: str) -> None:
    assert AsyncSightline(key=key).transport.headers == {}


@pytest.mark.parametrize("key", [KEY + "\n" + KEY, KEY + "é", KEY + " x", KEY + "\0", "\ufeff" + KEY])
def test_a_key_with_other_characters_is_refused_by_the_constructor_and_not_shown(key: str) -> None:
    with pytest.raises(InvalidArgumentError, match="SIGHTLINE_API_KEY") as caught:
        Sightline(key=key)
    assert "AAAA" not in "".join(traceback.format_exception(caught.value))


def test_a_protocol_error_does_not_show_the_headers_of_the_request(silent_url: str) -> None:
    with (
        httpx2.Client(headers={"x-secret": "hunter2\n"}) as http,
        Sightline(silent_url, KEY, http=http, retry=NO_RETRY) as sl,
    ):
        with pytest.raises(OutcomeUnknownError) as lost:
            sl.me()
        with sl.workspaces.events("w") as events, pytest.raises(SightlineError) as unread:
            next(events)
    for caught in (lost, unread):
        assert "hunter2" not in "".join(traceback.format_exception(caught.value))
