"""Recorded events and receipts over HTTP."""

from typing import Any

import pytest

from sightline.domain.units import MicroUsdc
from sightline.domain.value import replace
from sightline.ports.ledger import Inclusion
from sightline.ports.video import MediaKind
from sightline.system.keccak import keccak256
from sightline_client.verification import verify_events, verify_receipt
from tests.http.world import Party, World, data_of, error_of

TX = "0x" + "5e" * 32


async def ended(world: World) -> tuple[Party, Party, str]:
    """A session with a pause that is over."""
    consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
    session = await world.live(consumer, operator)
    for seconds in (5, 5, 15, 5):
        world.clock.advance(seconds)
        data_of(await operator.beat())
        world.video.tell(session["id"], MediaKind.FRAMES)
    data_of(await consumer.key.post(f"/api/v1/sessions/{session['id']}/end"))
    return consumer, operator, f"/api/v1/sessions/{session['id']}"


async def test_the_cost_so_far_is_shown_while_live_and_is_the_charge_at_the_end(world: World) -> None:
    consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
    session = await world.live(consumer, operator)
    path, rate = f"/api/v1/sessions/{session['id']}", int(session["ratePerSecondMicroUsdc"])
    for _ in range(3):
        world.clock.advance(2)
        data_of(await operator.beat())
        world.video.tell(session["id"], MediaKind.FRAMES)
    for shown in (data_of(await consumer.key.get(path)), data_of(await consumer.key.get(f"{path}/meter"))):
        assert (shown["cleanSeconds"], shown["chargedMicroUsdc"]) == (6, "0")
        assert shown["accruedMicroUsdc"] == str(6 * rate)
    over = data_of(await consumer.key.post(f"{path}/end"))
    assert over["accruedMicroUsdc"] == over["chargedMicroUsdc"] == str(6 * rate)


async def test_both_parties_can_verify_the_receipt(world: World) -> None:
    consumer, operator, path = await ended(world)
    for party in (consumer, operator):
        receipt = data_of(await party.key.get(f"{path}/receipt"))
        assert verify_receipt(receipt, keccak256=keccak256).failures == ()
    session, meter = data_of(await consumer.key.get(path)), data_of(await consumer.key.get(f"{path}/meter"))
    assert {name: session[name] for name in receipt["session"]} == receipt["session"]
    assert int(session["chargedMicroUsdc"]) > 0
    assert receipt["meter"]["windows"] == meter["windows"] != []
    assert (receipt["meter"]["headHash"], receipt["meter"]["endedHeadHash"]) == (meter["headHash"],) * 2
    assert (
        receipt["contracts"]["settlementAddress"]
        == data_of(await world.anyone.get("/api/v1/config"))["settlementAddress"]
    )


async def test_a_settlement_changes_the_head_hash_and_not_that_of_the_end(world: World) -> None:
    consumer, _, path = await ended(world)
    before = data_of(await consumer.key.get(f"{path}/receipt"))
    session_id = before["session"]["id"]
    inclusion = Inclusion(tx_hash=TX, block_number=9, block_hash="0x" + "cd" * 32, log_index=3)
    await world.ledger.mark_confirmed(session_id, inclusion, now_ms=world.clock.now_ms())
    await world.settle(session_id, TX)
    after = data_of(await consumer.key.get(f"{path}/receipt"))
    assert verify_receipt(after, keccak256=keccak256).failures == ()
    assert after["events"][-1]["kind"] == "SETTLED"
    assert after["meter"]["endedHeadHash"] == before["meter"]["headHash"] != after["meter"]["headHash"]
    meter = data_of(await consumer.key.get(f"{path}/meter"))
    assert (meter["headHash"], meter["endedHeadHash"]) == (
        after["meter"]["headHash"],
        after["meter"]["endedHeadHash"],
    )
    place = {name: after["settlement"][name] for name in ("state", "txHash", "blockNumber", "logIndex")}
    assert place == {"state": "CONFIRMED", "txHash": TX, "blockNumber": "9", "logIndex": 3}


async def test_a_session_that_the_chain_had_settled_otherwise_shows_the_numbers_of_the_chain_and_says_so(
    world: World,
) -> None:
    consumer, _, path = await ended(world)
    before = data_of(await consumer.key.get(f"{path}/receipt"))
    session, ours = before["session"], before["settlement"]["payload"]
    record = await world.ledger.settlement(session["id"])
    assert record is not None
    seconds = session["cleanSeconds"] + 4
    total = seconds * int(ours["ratePerSecond"])
    fee = total * ours["platformFeeBps"] // 10_000
    on_chain = replace(
        record.payload, chargeable_seconds=seconds, to_amount=MicroUsdc(total - fee), fee_amount=MicroUsdc(fee)
    )
    inclusion = Inclusion(tx_hash=TX, block_number=9, block_hash="0x" + "cd" * 32, log_index=3)
    await world.ledger.mark_mismatched(session["id"], inclusion, on_chain, now_ms=world.clock.now_ms())
    receipt = data_of(await consumer.key.get(f"{path}/receipt"))
    settlement = data_of(await consumer.key.get(f"/api/v1/settlements/{session['id']}"))
    shown = {"toAmount": str(total - fee), "feeAmount": str(fee), "chargeableSeconds": seconds}
    for each in (receipt["settlement"], settlement):
        assert (each["state"], each["mismatched"], each["payload"]) == ("CONFIRMED", True, ours | shown)
    assert receipt["session"] == session
    (failure,) = verify_receipt(receipt, keccak256=keccak256).failures
    assert failure.line == "settlement.mismatched"
    assert f"the contract settled {total} micro-USDC for {seconds} s" in failure.message


async def test_events_are_paged_by_sequence_while_live_and_after(world: World) -> None:
    consumer, _, path = await ended(world)
    pages: list[dict[str, Any]] = [data_of(await consumer.key.get(f"{path}/meter/events?limit=2"))]
    while pages[-1]["nextCursor"] is not None:
        pages.append(data_of(await consumer.key.get(f"{path}/meter/events?limit=2&cursor={pages[-1]['nextCursor']}")))
    items = [item for page in pages for item in page["items"]]
    assert [item["sequence"] for item in items] == list(range(1, len(items) + 1))
    kinds = [item["kind"] for item in items]
    assert kinds == ["CREATED", "ASSIGNED", "STARTED", "PAUSED", "PAUSED", "RESUMED", "ENDED"]
    assert [len(page["items"]) for page in pages] == [2, 2, 2, 1]
    assert verify_events(path.rpartition("/")[2], items, pages[-1]["headHash"]).is_valid
    assert items == data_of(await consumer.key.get(f"{path}/receipt"))["events"]


@pytest.mark.parametrize(
    ("query", "detail"),
    [("limit=0", "pagination:limit"), ("limit=501", "pagination:limit"), ("cursor=x", "pagination:cursor")],
)
async def test_a_page_of_events_that_cannot_be_is_refused(world: World, query: str, detail: str) -> None:
    consumer = await world.party("CONSUMER")
    session = await world.request(consumer)
    answer = await consumer.key.get(f"/api/v1/sessions/{session['id']}/meter/events?{query}")
    assert error_of(answer) == (400, "INVALID_INPUT", detail)


async def test_there_is_no_receipt_before_the_end(world: World) -> None:
    consumer = await world.party("CONSUMER")
    session = await world.request(consumer)
    path = f"/api/v1/sessions/{session['id']}"
    early = await consumer.key.get(f"{path}/receipt")
    assert error_of(early) == (409, "INVALID_STATE", "session:notOver")
    assert early.json()["state"] == "REQUESTED"
    data_of(await consumer.key.delete(path))
    receipt = data_of(await consumer.key.get(f"{path}/receipt"))
    assert verify_receipt(receipt, keccak256=keccak256).failures == ()
    assert receipt["settlement"]["state"] == "NOT_READY"
