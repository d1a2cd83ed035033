"""The consumer lease that `view` requests, and how a view ends."""

import pytest

from sightline_client import AsyncSightline, NoOperatorError
from tests.http.world import data_of, open_world


async def test_a_view_leaves_a_lease_with_the_server_for_the_case_that_its_program_is_killed() -> None:
    async with open_world() as world:
        consumer = await world.party("CONSUMER")
        leases = []
        async with AsyncSightline(world.base_url, consumer.plaintext) as sl:
            for view in (
                sl.view(5.0, 5.0, operator_wait_s=0),
                sl.view(5.0, 5.0, operator_wait_s=0, lease_s=15),
                sl.view(5.0, 5.0, operator_wait_s=0, lease_s=None),
            ):
                with pytest.raises(NoOperatorError):
                    async with view:
                        pass
                session = data_of(await consumer.key.get(f"/api/v1/sessions/{view.session.id}"))
                leases.append(session["consumerLeaseSeconds"])
        assert leases == [120, 15, None]
