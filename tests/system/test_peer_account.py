"""The account of a connection from this machine."""

import os
import pwd

import pytest
import trio

from sightline.http.internal.peer_account import account_of


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_the_account_that_holds_the_other_end_is_named(host: str) -> None:
    (listener,) = await trio.open_tcp_listeners(0, host=host)
    async with listener, await trio.open_tcp_stream(host, listener.socket.getsockname()[1]) as client:
        served = await listener.accept()
        assert account_of(served.socket.getpeername()[:2]) == pwd.getpwuid(os.getuid()).pw_name
        assert account_of(client.socket.getsockname()[:2]) == pwd.getpwuid(os.getuid()).pw_name
        await served.aclose()


@pytest.mark.parametrize("client", [("203.0.113.7", 80), ("127.0.0.1", 0), ("", 0), ("no address", 1)])
def test_a_connection_of_another_machine_names_nobody(client: tuple[str, int]) -> None:
    assert account_of(client) is None
