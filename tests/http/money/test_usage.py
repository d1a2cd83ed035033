"""Usage by day over HTTP."""

import csv
import io

import pytest

from sightline.domain.settlement import SettlementPayload
from sightline.domain.units import DAY_MS, MicroUsdc
from tests.http.world import Party, World, data_of, error_of

RANGE = "from=2026-11-20&to=2026-11-22"
DAY = 20_777
"""2026-11-20."""


async def settle(world: World, consumer: Party, operator: Party, day: int, charge: int) -> None:
    payload = SettlementPayload(
        session_id=world.ids.uuid(),
        from_address=consumer.account.address,
        to_address=operator.account.address,
        to_amount=MicroUsdc(charge - charge * 15 // 100),
        fee_amount=MicroUsdc(charge * 15 // 100),
        rate=MicroUsdc(100),
        chargeable_seconds=charge // 100,
        consumer_workspace_id=consumer.id,
        operator_workspace_id=operator.id,
        platform_fee_bps=1_500,
    )
    await world.ledger.compose(payload, now_ms=day * DAY_MS)


async def test_consumers_see_what_they_paid_and_operators_what_they_earned(world: World) -> None:
    consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
    for day, charge in ((DAY, 1_000), (DAY, 3_000), (DAY + 2, 500), (DAY + 3, 9_000)):
        await settle(world, consumer, operator, day, charge)
    paid = data_of(await consumer.key.get(f"/api/v1/usage?side=consumer&{RANGE}"))
    assert [(each["date"], each["sessions"], each["cleanSeconds"]) for each in paid["items"]] == [
        ("2026-11-20", 2, 40),
        ("2026-11-21", 0, 0),
        ("2026-11-22", 1, 5),
    ]
    assert [each["amountMicroUsdc"] for each in paid["items"]] == ["4000", "0", "500"]
    assert paid["total"] == {
        "sessions": 3,
        "cleanSeconds": 45,
        "amountMicroUsdc": "4500",
        "platformFeeMicroUsdc": "675",
    }
    earned = data_of(await operator.key.get(f"/api/v1/usage?side=operator&{RANGE}"))
    assert earned["total"]["amountMicroUsdc"] == "3825"
    assert data_of(await operator.key.get(f"/api/v1/usage?side=consumer&{RANGE}"))["total"]["sessions"] == 0


async def test_usage_comes_as_csv_for_who_asks_for_it(world: World) -> None:
    consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
    await settle(world, consumer, operator, DAY, 1_000)
    path = f"/api/v1/usage?side=consumer&{RANGE}"
    answer = await consumer.key.get(f"{path}&format=csv")
    assert answer.headers["content-type"].startswith("text/csv")
    assert (
        answer.headers["content-disposition"]
        == 'attachment; filename="sightline-usage-consumer-2026-11-20-2026-11-22.csv"'
    )
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    items = data_of(await consumer.key.get(path))["items"]
    assert rows == [{name: str(value) for name, value in each.items()} for each in items]
    by_header = await consumer.key.get(path, headers={"accept": "text/csv, */*;q=0.1"})
    assert by_header.content == answer.content
    assert "items" in data_of(await consumer.key.get(f"{path}&format=json", headers={"accept": "text/csv"}))


@pytest.mark.parametrize(
    ("query", "detail"),
    [
        (RANGE, "usage:side"),
        (f"side=both&{RANGE}", "usage:side"),
        ("side=consumer&to=2026-11-22", "usage:from"),
        ("side=consumer&from=2026-11-20", "usage:to"),
        ("side=consumer&from=2026-02-30&to=2026-11-22", "usage:from"),
        ("side=consumer&from=2026-11-20&to=1764000000000", "usage:to"),
        ("side=consumer&from=1969-12-31&to=2026-11-22", "usage:from"),
        ("side=consumer&from=2026-11-23&to=2026-11-22", "usage:range"),
        ("side=consumer&from=2025-11-21&to=2026-11-22", "usage:range"),
        (f"side=consumer&{RANGE}&bucket=hour", "usage:bucket"),
        (f"side=consumer&{RANGE}&format=xml", "usage:format"),
    ],
)
async def test_a_range_that_cannot_be_is_refused(world: World, query: str, detail: str) -> None:
    consumer = await world.party("CONSUMER")
    assert error_of(await consumer.key.get(f"/api/v1/usage?{query}")) == (400, "INVALID_INPUT", detail)
