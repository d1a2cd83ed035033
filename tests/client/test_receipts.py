"""The receipt that a view returns."""

import trio

from sightline_client import AsyncSightline
from tests.client.test_losses import start_assigned
from tests.e2e.conftest import running_server
from tests.e2e.server import Server, a_tenant, go_online

__all__ = ["running_server"]

PLACE = (6.0, 6.0)


async def test_a_receipt_without_a_charge_waits_for_no_payment(running_server: Server) -> None:
    """The server pays the first such session at once and the second one up to ten minutes later."""
    consumer = await a_tenant(running_server.url, "CONSUMER", "free-view")
    operator = await a_tenant(running_server.url, "SUPPLIER", "free-camera")
    await go_online(running_server.url, operator, PLACE)
    async with trio.open_nursery() as nursery, AsyncSightline(running_server.url, consumer.key) as sl:
        nursery.start_soon(start_assigned, running_server.url, operator)
        for _ in range(2):
            async with sl.view(*PLACE, seconds=60) as view:
                pass  # nothing is published, so nothing is charged
            receipt = await view.receipt(wait_s=5)
            assert receipt.charged == 0
            receipt.verify()
        nursery.cancel_scope.cancel()
