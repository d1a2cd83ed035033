"""A client notices that its address is gone, and that there is another way to the server."""

import asyncio

import pytest

from sightline_client.video.route import Route


@pytest.mark.parametrize(("local", "is_gone"), [("127.0.0.1", False), ("192.0.2.1", True), ("2001:db8::1", True)])
def test_an_address_is_gone_if_this_machine_does_not_have_it(local: str, is_gone: bool) -> None:
    assert Route(local, "127.0.0.1").is_gone is is_gone


def test_a_server_that_can_be_reached_is_not_waited_for() -> None:
    asyncio.run(asyncio.wait_for(Route("192.0.2.1", "127.0.0.1").another(), 5))


def test_a_server_without_a_way_is_waited_for() -> None:
    async def waits() -> None:
        # Linux connects no UDP socket to a broadcast address, as to a network without a route.
        await asyncio.wait_for(Route("192.0.2.1", "255.255.255.255").another(), 0.5)

    with pytest.raises(TimeoutError):
        asyncio.run(waits())
