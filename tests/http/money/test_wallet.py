"""Settlements and wallets over HTTP."""

import json

import pytest

from sightline.domain.settlement import SettlementPayload, fee_of
from sightline.domain.units import DAY_MS, MicroUsdc
from sightline.domain.value import replace
from sightline.ports.ledger import (
    BlockApplication,
    BlockRef,
    ChainEvent,
    Inclusion,
    LedgerEventKind,
    SettlementState,
    SpendingLimits,
    WalletReading,
)
from sightline.ports.video import MediaKind
from sightline.system.keccak import session_id_hash
from sightline_client.models import Wallet
from sightline_client.money import MicroUsdc as MicroUsdcOfClient
from tests.client.commands.program import sightline
from tests.http.fakes import CHAIN
from tests.http.world import EVERY_SCOPE, Party, World, data_of, error_of

UNKNOWN = "00000000-0000-4000-8000-000000000000"
TX = "0x" + "ab" * 32


async def see_block(world: World, number: int, *, events: tuple[ChainEvent, ...] = (), readings: object = ()) -> None:
    head = BlockRef(number=number, block_hash=f"0x{number:064x}", parent_hash=f"0x{number - 1:064x}")
    application = BlockApplication(
        headers=(head,),
        events=events,
        readings=readings,
        settled=(),
        head=head,
        confirmed_block=number,
        previous=await world.ledger.chain_head(),
    )
    await world.ledger.apply_blocks(application, now_ms=world.clock.now_ms())


async def fund(world: World, party: Party, micro_usdc: int) -> None:
    """Let the wallet of a party have a balance and an allowance."""
    head = await world.ledger.chain_head()
    number = 1 if head is None else head.number + 1
    reading = WalletReading(
        address=party.account.address.lower(),
        balance_micro=micro_usdc,
        allowance_micro=micro_usdc,
        block_number=number,
    )
    await see_block(world, number, readings=(reading,))


def deposit(party: Party, number: int, *, kind: LedgerEventKind = LedgerEventKind.DEPOSIT) -> ChainEvent:
    return ChainEvent(
        address=party.account.address.lower(),
        kind=kind,
        tx_hash=f"0x{number:064x}",
        log_index=0,
        block_number=number,
        block_hash=f"0x{number:064x}",
        from_address=CHAIN.usdc_address.lower(),
        to_address=party.account.address.lower(),
        amount_micro=number * 1_000,
        session_id_hash=None,
    )


async def ended(world: World) -> tuple[Party, Party, dict[str, object]]:
    """A session that ran for a while and is over."""
    consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
    session = await world.live(consumer, operator)
    for _ in range(4):
        world.clock.advance(5)
        data_of(await operator.beat())
        world.video.tell(session["id"], MediaKind.FRAMES)
    return consumer, operator, data_of(await consumer.key.post(f"/api/v1/sessions/{session['id']}/end"))


async def test_a_settlement_goes_from_not_ready_to_confirmed(world: World) -> None:
    consumer, operator, session = await ended(world)
    path = f"/api/v1/settlements/{session['id']}"
    charged = MicroUsdc(int(str(session["chargedMicroUsdc"])))
    assert charged > 0
    fee = fee_of(charged, 1_500)
    pending = data_of(await operator.key.get(path))
    assert pending == {
        "sessionId": session["id"],
        "state": "PENDING",
        "payload": {
            "sessionIdHash": session_id_hash(str(session["id"])),
            "from": consumer.account.address,
            "to": operator.account.address,
            "toAmount": str(charged - fee),
            "feeAmount": str(fee),
            "ratePerSecond": session["ratePerSecondMicroUsdc"],
            "chargeableSeconds": session["cleanSeconds"],
            "consumerWorkspaceId": consumer.id,
            "operatorWorkspaceId": operator.id,
            "platformFeeBps": 1_500,
        },
        "txHash": None,
        "confirmedAt": None,
        "mismatched": False,
        "refusedFor": None,
        "writtenOff": False,
    }
    inclusion = Inclusion(tx_hash=TX, block_number=9, block_hash="0x" + "cd" * 32)
    now_ms = world.clock.now_ms()
    await world.ledger.mark_mined(str(session["id"]), inclusion, now_ms=now_ms)
    await world.ledger.mark_confirmed(str(session["id"]), inclusion, now_ms=now_ms)
    confirmed = data_of(await consumer.key.get(path))
    assert (confirmed["state"], confirmed["txHash"]) == ("CONFIRMED", TX)
    assert confirmed["confirmedAt"].endswith("Z")
    assert confirmed["payload"] == pending["payload"]


async def test_a_settlement_is_for_the_parties(world: World) -> None:
    consumer, stranger = await world.party("CONSUMER"), await world.party("CONSUMER", "SUPPLIER")
    session = await world.request(consumer)
    path = f"/api/v1/settlements/{session['id']}"
    nothing = dict.fromkeys(("payload", "txHash", "confirmedAt", "refusedFor"))
    not_ready = {"state": "NOT_READY", "mismatched": False, "writtenOff": False, **nothing}
    assert data_of(await consumer.key.get(path)) == {"sessionId": session["id"]} | not_ready
    assert error_of(await stranger.key.get(path)) == (403, "NOT_AUTHORIZED", "session:workspaceMismatch")
    unknown = await consumer.key.get(f"/api/v1/settlements/{UNKNOWN}")
    assert error_of(unknown)[:2] == (404, "SESSION_NOT_FOUND")
    data_of(await consumer.key.delete(f"/api/v1/sessions/{session['id']}"))
    assert data_of(await consumer.key.get(path))["state"] == "NOT_READY"


async def test_a_wallet_shows_balance_allowance_and_what_is_held(world: World) -> None:
    consumer = await world.party("CONSUMER")
    fresh = data_of(await consumer.key.get("/api/v1/wallet"))
    assert (fresh["trackedBalance"], fresh["lastSyncBlock"], fresh["heldMicroUsdc"]) == ("0", "0", "0")
    reading = WalletReading(
        address=consumer.account.address.lower(), balance_micro=5_000_000, allowance_micro=3_000_000, block_number=4
    )
    await see_block(world, 4, readings=(reading,))
    session = await world.request(consumer)
    wallet = data_of(await consumer.wallet.get("/api/v1/wallet"))
    hold = int(session["holdMicroUsdc"])
    assert wallet == {
        "workspaceId": consumer.id,
        "walletAddress": consumer.account.address,
        "trackedBalance": "5000000",
        "trackedAllowance": "3000000",
        "heldMicroUsdc": str(hold),
        "escrowedMicroUsdc": "0",
        "availableMicroUsdc": str(3_000_000 - hold),
        "limits": None,
        "keyLimits": None,
        "lastSyncBlock": "4",
        "updatedAt": wallet["updatedAt"],
    }
    data_of(await consumer.key.delete(f"/api/v1/sessions/{session['id']}"))
    assert data_of(await consumer.key.get("/api/v1/wallet"))["heldMicroUsdc"] == "0"


async def test_a_wallet_shows_its_limits_and_what_the_day_has_left_beside_the_holds(world: World) -> None:
    consumer = await world.party("CONSUMER")
    day = world.clock.now_ms() // DAY_MS
    session = await world.request(consumer)
    hold = int(session["holdMicroUsdc"])
    for number, (spent_on, left) in enumerate([(day, 9_000_000 - hold - 700), (day - 1, 9_000_000 - hold)], start=4):
        reading = WalletReading(
            address=consumer.account.address.lower(), balance_micro=5_000_000, allowance_micro=3_000_000,
            block_number=number, limits=SpendingLimits(per_session=600, per_day=9_000_000, spent=700, day=spent_on),
        )  # fmt: skip
        await see_block(world, number, readings=(reading,))
        wallet = data_of(await consumer.key.get("/api/v1/wallet"))
        assert wallet["limits"] == {
            "perSessionMicroUsdc": "600", "perDayMicroUsdc": "9000000", "leftTodayMicroUsdc": str(left),
        }  # fmt: skip


async def test_a_wallet_shows_the_limits_of_the_key_that_asks_and_what_the_day_has_left(world: World) -> None:
    consumer = await world.party("CONSUMER")
    reading = WalletReading(
        address=consumer.account.address.lower(), balance_micro=9_000_000, allowance_micro=9_000_000, block_number=4
    )
    await see_block(world, 4, readings=(reading,))
    wallet = data_of(await consumer.key.get("/api/v1/wallet"))
    assert wallet["keyLimits"] is None
    assert Wallet.model_validate(wallet).spendable_micro_usdc == 9_000_000
    body = {"label": "agent", "environment": "TEST", "scopes": list(EVERY_SCOPE)}

    async def mint(**limits: str) -> None:
        minted = await consumer.wallet.post(f"{consumer.path}/api-keys", body | {"limits": limits})
        consumer.plaintext = data_of(minted)["plaintext"]

    await mint(perSessionMicroUsdc="10000")
    wallet = data_of(await consumer.key.get("/api/v1/wallet"))
    assert wallet["keyLimits"] == {
        "perSessionMicroUsdc": "10000", "perDayMicroUsdc": None, "leftTodayMicroUsdc": None,
    }  # fmt: skip
    assert Wallet.model_validate(wallet).covered_micro_usdc == 9_000_000
    printed = (await sightline(world, consumer, "wallet")).stdout.splitlines()
    assert printed[-2:] == ["API key    at most 0.01 a session", "spendable  0.01 for a new session"]

    await mint(perDayMicroUsdc="4000000")
    left = 4_000_000 - int((await world.request(consumer, maxDurationSeconds=60))["holdMicroUsdc"])
    wallet = data_of(await consumer.key.get("/api/v1/wallet"))
    assert wallet["keyLimits"] == {
        "perSessionMicroUsdc": None, "perDayMicroUsdc": "4000000", "leftTodayMicroUsdc": str(left),
    }  # fmt: skip
    usdc = MicroUsdcOfClient(left).usdc
    printed = (await sightline(world, consumer, "wallet")).stdout.splitlines()
    assert printed[-2] == f"API key    at most 4 a day (UTC), of which {usdc} are left"
    assert printed[-1] == f"spendable  {usdc} for a new session"


async def test_the_ledger_is_paged_and_filtered(world: World) -> None:
    consumer = await world.party("CONSUMER")
    for number in range(1, 6):
        kind = LedgerEventKind.APPROVAL if number == 3 else LedgerEventKind.DEPOSIT
        await see_block(world, number, events=(deposit(consumer, number, kind=kind),))
    first = data_of(await consumer.key.get("/api/v1/wallet/events?limit=2"))
    second = data_of(await consumer.key.get(f"/api/v1/wallet/events?limit=3&cursor={first['nextCursor']}"))
    blocks = [each["blockNumber"] for each in first["items"] + second["items"]]
    assert blocks == ["5", "4", "3", "2", "1"]
    assert second["nextCursor"] is None
    row = first["items"][0]
    assert row == {
        "id": row["id"],
        "workspaceId": consumer.id,
        "kind": "DEPOSIT",
        "txHash": f"0x{5:064x}",
        "logIndex": 0,
        "blockNumber": "5",
        "blockHash": f"0x{5:064x}",
        "fromAddress": CHAIN.usdc_address,
        "toAddress": consumer.account.address,
        "amountMicroUsdc": "5000",
        "sessionId": None,
        "confirmations": row["confirmations"],
        "confirmedAt": row["confirmedAt"],
        "removed": False,
        "createdAt": row["createdAt"],
    }

    async def found(query: str) -> list[str]:
        page = data_of(await consumer.key.get(f"/api/v1/wallet/events?{query}"))
        return [each["blockNumber"] for each in page["items"]]

    assert await found("kind=APPROVAL") == ["3"]
    assert await found("kind=APPROVAL&kind=DEPOSIT&fromBlock=2&toBlock=3") == ["3", "2"]


@pytest.mark.parametrize(
    ("query", "detail"),
    [
        ("limit=0", "pagination:limit"),
        ("limit=1000", "pagination:limit"),
        ("cursor=e1-5", "pagination:cursor"),
        ("cursor=w1-1000000000000000", "pagination:cursor"),
        ("kind=GIFT", "wallet:kind"),
        ("fromBlock=-1", "wallet:fromBlock"),
        ("toBlock=latest", "wallet:toBlock"),
        ("sessionId=1", "wallet:sessionId"),
    ],
)
async def test_a_wrong_ledger_parameter_is_named(world: World, query: str, detail: str) -> None:
    consumer = await world.party("CONSUMER")
    assert error_of(await consumer.key.get(f"/api/v1/wallet/events?{query}")) == (400, "INVALID_INPUT", detail)


async def test_a_settlement_is_written_off_once_with_a_reason_and_frees_the_wallet(world: World) -> None:
    session_id = "33333333-3333-4333-8333-333333333333"
    path = f"/internal/settlements/{session_id}/write-off"
    assert (await world.internal.post(path, params={"reason": "x"})).status_code == 404
    payload = SettlementPayload(
        session_id=session_id, from_address="0x" + "a1" * 20, to_address="0x" + "b2" * 20, to_amount=MicroUsdc(85),
        fee_amount=MicroUsdc(15), rate=MicroUsdc(10), chargeable_seconds=10, consumer_workspace_id="c",
        operator_workspace_id="o", platform_fee_bps=1_500,
    )  # fmt: skip
    await world.ledger.compose(payload, now_ms=world.clock.now_ms())
    assert (await world.internal.post(path)).status_code == 400
    for _ in range(2):
        answer = data_of(await world.internal.post(path, params={"reason": "payer blacklisted"}))
        assert (answer["state"], answer["reason"]) == ("WRITTEN_OFF", "payer blacklisted")
    assert data_of(await world.internal.get("/internal/settlements"))["items"] == []


async def test_a_receipt_whose_payment_is_not_confirmed_says_that_it_waits(world: World) -> None:
    consumer, _, session = await ended(world)
    said = await sightline(world, consumer, "receipt", str(session["id"]), "--wait", "0.1")
    waits, late = said.stderr.splitlines()
    assert waits == "The payment is not confirmed yet. Waiting for it, at most 0.1 s."
    assert late.endswith("check that the wallet's balance, allowance and limits cover the charge.")
    at_once = await sightline(world, consumer, "receipt", str(session["id"]), "--wait", "0")
    assert (at_once.returncode, len(at_once.stderr.splitlines())) == (1, 1)


async def test_a_receipt_whose_charge_was_written_off_says_at_once_that_nothing_is_owed(world: World) -> None:
    consumer, _, session = await ended(world)
    path = f"/internal/settlements/{session['id']}/write-off"
    assert (await world.internal.post(path, params={"reason": "bad debt"})).status_code == 200
    settlement = data_of(await consumer.key.get(f"/api/v1/settlements/{session['id']}"))
    assert (settlement["state"], settlement["writtenOff"]) == ("PENDING", True)
    said = await sightline(world, consumer, "receipt", str(session["id"]))
    assert said.stderr == "The charge was written off by the service: it was not paid, and nothing is owed.\n"
    assert said.stdout.splitlines()[0].endswith("USDC, not paid")
    assert said.returncode == 0


async def test_refunds_are_shown_to_the_consumer_by_sessions_and_receipt(world: World) -> None:
    consumer, operator, session = await ended(world)
    session_id = str(session["id"])
    inclusion = Inclusion(tx_hash=TX, block_number=1, block_hash=f"0x{1:064x}", log_index=0)
    await world.ledger.mark_confirmed(session_id, inclusion, now_ms=world.clock.now_ms())
    await world.settle(session_id, TX)
    back = {"kind": LedgerEventKind.TRANSFER_IN, "session_id_hash": session_id_hash(session_id), "amount_micro": 50_000}
    returned = {"from_address": CHAIN.settlement_address.lower()}
    events = replace(deposit(consumer, 2), **back), replace(deposit(consumer, 3), **back, **returned)
    for number, event in enumerate(events, start=2):
        await see_block(world, number, events=(event,))
    # The world has no chain: the receipt is printed with an error that the node does not answer.
    for command in (("sessions",), ("receipt", "--rpc-url", "http://127.0.0.1:1")):
        printed = (await sightline(world, consumer, *command, session_id)).stdout
        (line,) = [line for line in printed.splitlines() if "refunded" in line]
        assert " ".join(line.split()) == f"refunded 0.05 USDC in 0x{2:064x}"
        found = json.loads((await sightline(world, consumer, *command, session_id, "--json")).stdout)
        assert found["refunds"] == [{"amountMicroUsdc": "50000", "txHash": f"0x{2:064x}"}]
        of_operator = await sightline(world, operator, *command, session_id, "--json")
        assert json.loads(of_operator.stdout)["refunds"] is None
        narrow = (await consumer.mint("sessions:read")).headers["authorization"].removeprefix("Bearer ")
        unread = await sightline(world, consumer, *command, session_id, "--json", SIGHTLINE_API_KEY=narrow)
        assert json.loads(unread.stdout)["refunds"] is None


@pytest.mark.parametrize(
    ("reason", "shown"),
    [
        ("SessionSettlement: over the payer's session limit", "SESSION_LIMIT"),
        ("SessionSettlement: over the payer's day limit", "DAY_LIMIT"),
        ("TestUSDC: amount exceeds allowance", "ALLOWANCE"),
        ("TestUSDC: amount exceeds balance", "BALANCE"),
        ("https://node.example/key answered 500", "OTHER"),
    ],
)
async def test_a_refused_payment_says_which_of_the_payers_bounds_it_is(world: World, reason: str, shown: str) -> None:
    consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
    session = await world.live(consumer, operator)
    path = f"/api/v1/settlements/{session['id']}"
    data_of(await consumer.key.post(f"/api/v1/sessions/{session['id']}/end"))
    assert data_of(await consumer.key.get(path))["refusedFor"] is None
    now_ms = world.clock.now_ms()
    failed = SettlementState.FAILED
    await world.ledger.mark_waiting(session["id"], failed, reason=reason, retry_at_ms=now_ms, now_ms=now_ms)
    for party in (consumer, operator):
        found = data_of(await party.key.get(path))
        assert (found["state"], found["refusedFor"]) == ("PENDING", shown)
