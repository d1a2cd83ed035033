"""Holds are opened once and closed once, whatever the endpoint does; the books equal the chain."""

from contextlib import suppress

import pytest
import structlog.testing
import trio

from sightline.chain.contracts.messages import SLACK_S
from sightline.chain.relayer.captures import BATCH_GAS, CAPTURE_GAS, NOT_OPENED
from sightline.chain.service import ChainService
from sightline.domain.errors import RefusedError, UnavailableError
from sightline.domain.escrow import ConsentKind
from sightline.domain.refusal import Code
from sightline.domain.session.model import Assigned
from sightline.domain.value import replace
from sightline.http.schemas.escrow import statement_json
from sightline.ports.chain import ChainConfig
from sightline.ports.escrow import SignedStatement
from sightline.ports.ledger import SettlementState
from sightline_client import AsyncChain
from sightline_client.models import Statement
from sightline_client.wallet import LocalWallet
from tests.chain.endpoint import honest, lose_reply, no_receipt, of_method, open_endpoint, some_times
from tests.chain.escrow.stage import HOLD, KINDS, Kind, Stage
from tests.chain.world import USDC, Wallet, clock, ids, until

SEND = "eth_sendRawTransaction"
FUNDS = 100 * USDC


async def until_books_balance(stage: Stage) -> None:
    """Wait until the watcher has read everything, and compare its books with the chain."""
    await stage.world.assert_books_balance()
    view = await stage.ledger.wallet(stage.world.payer.workspace_id)
    assert view is not None
    assert view.held_micro == 0


@pytest.mark.parametrize("kind", KINDS)
async def test_a_hold_is_open_before_the_start_and_the_rest_returns_at_the_end(stage: Stage, kind: Kind) -> None:
    if kind in {ConsentKind.CONSENT, ConsentKind.MANDATE}:
        await stage.world.give_coin(stage.world.payer)
        await stage.world.approve(stage.world.payer)
    before = await stage.held()
    async with stage.running() as service:
        assert service.escrow is not None
        session = await stage.assigned(service, kind=kind)
        tx_hash = await service.escrow.open_hold(session)
        assert (await stage.world.rpc.call("eth_getTransactionReceipt", tx_hash))["status"] == "0x1"
        assert await stage.held() == before + HOLD
        assert await service.escrow.open_hold(session) == tx_hash, "a repeat opens nothing"
        charged = await stage.ended(session, 20)
        service.notify()
        await stage.until_done(session.id)
        fee = charged * 1_500 // 10_000
        assert await stage.world.balance(stage.world.payer) == FUNDS - charged
        assert await stage.world.balance(stage.world.payee) == charged - fee
        assert await stage.held() == before
        await until_books_balance(stage)


@pytest.mark.parametrize("lost", [1, 3])
async def test_an_open_whose_answer_is_lost_is_sent_again_and_opens_once(stage: Stage, lost: int) -> None:
    stage.world.endpoint.fault = of_method(SEND, some_times(lost, lose_reply))
    async with stage.running() as service:
        assert service.escrow is not None
        session = await stage.assigned(service)
        await service.escrow.open_hold(session)
        row = await stage.openings.opening(session.id)
        assert row is not None
        assert len(row.attempts) == 1
        assert await stage.world.balance(stage.world.payer) == FUNDS - HOLD


async def test_a_start_waits_until_both_endpoints_have_its_hold_in_a_block(stage: Stage) -> None:
    async with open_endpoint(stage.world.node_url) as second:
        urls = f"{stage.world.endpoint.url},{second.url}"
        with structlog.testing.capture_logs() as logs:
            async with stage.running(rpc_url=urls) as service, trio.open_nursery() as nursery:
                assert service.escrow is not None
                session = await stage.assigned(service)
                second.fault = of_method("eth_getTransactionReceipt", no_receipt)
                opened: list[str] = []

                async def start() -> None:
                    assert service.escrow is not None
                    while not opened:
                        with suppress(UnavailableError):
                            opened.append(await service.escrow.open_hold(session))

                async def is_named() -> bool:
                    return any(each["event"] == "chain_endpoint_disagrees" for each in logs)

                nursery.start_soon(start)
                await until("the endpoints disagree", is_named)
                row = await stage.openings.opening(session.id)
                assert row is not None
                assert (row.state, opened) == (SettlementState.SENT, [])
                second.fault = honest

                async def is_open() -> bool:
                    return bool(opened)

                await until("the start is answered", is_open)


async def test_a_start_needs_no_endpoint_that_is_away(stage: Stage) -> None:
    async with open_endpoint(stage.world.node_url) as second:
        urls = f"{stage.world.endpoint.url},{second.url}"
        async with stage.running(rpc_url=urls) as service:
            assert service.escrow is not None
            second.is_down = True
            assert await service.escrow.open_hold(await stage.assigned(service))


async def test_many_sessions_are_captured_in_few_transactions(stage: Stage) -> None:
    charges: dict[str, int] = {}
    async with stage.running(capture_window_ms=2_000) as service:
        assert service.escrow is not None
        for seconds in range(12):
            session = await stage.assigned(service)
            await service.escrow.open_hold(session)
            charges[session.id] = await stage.ended(session, seconds)
        service.notify()
        await stage.world.until_told(*charges)
        transactions = {(await stage.world.record(session_id)).tx_hash for session_id in charges}
        assert len(transactions) <= 4
        for tx_hash in transactions:
            sent = await stage.world.rpc.call("eth_getTransactionByHash", tx_hash)
            shared = len(await stage.ledger.of_transaction(str(tx_hash)))
            assert int(sent["gas"], 16) == BATCH_GAS + CAPTURE_GAS * shared
        assert await stage.world.settled_on_chain() == charges
        await until_books_balance(stage)


async def test_a_charge_waits_for_others_to_share_its_transaction(stage: Stage) -> None:
    async with stage.running(capture_window_ms=8_000) as service:
        assert service.escrow is not None
        first, second = await stage.assigned(service), await stage.assigned(service)
        await service.escrow.open_hold(first)
        await stage.ended(first, 3)
        # The relayer wakes and looks at both outboxes before the second hold is in a block.
        service.notify()
        await service.escrow.open_hold(second)
        await stage.ended(second, 4)
        service.notify()
        await stage.world.until_told(first.id, second.id)
        assert len({(await stage.world.record(each.id)).tx_hash for each in (first, second)}) == 1


async def test_a_charge_for_more_seconds_than_passed_on_the_chain_waits_until_its_clock_has_caught_up(
    stage: Stage,
) -> None:
    async with stage.running() as service:
        assert service.escrow is not None
        session = await stage.assigned(service, duration_s=4_000)
        await service.escrow.open_hold(session)
        await stage.ended(session, 3_600)
        service.notify()

        async def waits() -> bool:
            record = await stage.world.record(session.id)
            return record.reason == "the chain's clock is behind the session's"

        await until("the capture waits for the chain's clock", waits)
        record = await stage.world.record(session.id)
        assert (record.attempts, record.state) == ((), SettlementState.COMPOSED)


async def test_a_long_session_is_charged_although_no_block_was_made_since_its_hold(stage: Stage) -> None:
    async with stage.running() as service:
        assert service.escrow is not None
        session = await stage.assigned(service)
        await service.escrow.open_hold(session)
        charged = await stage.ended(session, SLACK_S + 2)
        service.notify()
        await stage.world.until_told(session.id)
        assert await stage.world.settled_on_chain() == {session.id: charged}


async def test_a_free_settlement_whose_hold_was_given_up_before_a_crash_is_written_off(stage: Stage) -> None:
    async with stage.opened() as service:
        assert service.escrow is not None
        session = await stage.assigned(service)
        with trio.move_on_after(0.3):
            await service.escrow.open_hold(session)
    await stage.closed(session)
    assert await stage.openings.withdraw(session.id, now_ms=clock.now_ms())
    async with stage.running():
        await stage.until_done(session.id, SettlementState.WRITTEN_OFF)


async def test_a_session_that_is_cancelled_while_its_hold_opens_gets_everything_back(stage: Stage) -> None:
    async with stage.running() as service:
        assert service.escrow is not None
        session = await stage.assigned(service)
        await service.escrow.open_hold(session)
        await stage.closed(session)
        service.notify()
        await stage.until_done(session.id)
        assert await stage.world.balance(stage.world.payer) == FUNDS
        await until_books_balance(stage)


async def test_a_hold_that_was_never_sent_is_not_opened_after_its_session_is_over(stage: Stage) -> None:
    pauper = Wallet()
    async with stage.running() as service:
        assert service.escrow is not None
        session = await stage.assigned(service, payer=pauper)
        with pytest.raises(RefusedError) as refused:
            await service.escrow.open_hold(session)
        assert refused.value.refusal.detail == "session:fundsNotHeld"
        await stage.closed(session)
        service.notify()
        await stage.until_done(session.id, SettlementState.WRITTEN_OFF)
        assert (await stage.world.record(session.id)).reason == NOT_OPENED
        await stage.world.fund(pauper)
        row = await stage.openings.opening(session.id)
        assert row is not None
        assert row.state is SettlementState.WRITTEN_OFF


async def test_a_row_that_names_another_payee_than_the_session_is_not_signed(stage: Stage) -> None:
    async with stage.running() as service:
        assert service.escrow is not None
        session = await stage.assigned(service)
        assert isinstance(session.phase, Assigned)
        thief = replace(session.phase.operator, wallet_address=Wallet().address)
        with pytest.raises(RefusedError, match="payee differs from the session's record"):
            await service.escrow.open_hold(replace(session, phase=replace(session.phase, operator=thief)))
        assert await stage.world.balance(stage.world.payer) == FUNDS


async def test_a_charge_that_differs_from_the_session_is_not_captured(stage: Stage) -> None:
    async with stage.running() as service:
        assert service.escrow is not None
        session = await stage.assigned(service)
        await service.escrow.open_hold(session)
        await stage.ended(session, 20)
        # Whoever can write the database makes the record cheaper than the settlement says.
        await stage.database.run(
            lambda connection: connection.execute(
                "UPDATE session SET doc = jsonb_set(doc::jsonb, '{phase,clean_seconds}', '19')::json WHERE id = $1",
                session.id,
            )
        )
        service.notify()

        async def refused() -> bool:
            return "not proved" in ((await stage.world.record(session.id)).reason or "")

        await until("the relayer refuses the settlement", refused)
        assert await stage.world.settled_on_chain() == {}


async def test_a_stop_between_signing_and_broadcast_sends_the_same_open(stage: Stage) -> None:
    async def swallow(_request: object, _forward: object) -> None:
        await trio.sleep_forever()

    async with stage.running() as service:
        session = await stage.assigned(service)
    stage.world.endpoint.fault = of_method(SEND, swallow)  # type: ignore[arg-type]
    async with stage.running() as service, trio.open_nursery() as nursery:
        assert service.escrow is not None
        nursery.start_soon(service.escrow.open_hold, session)

        async def signed() -> bool:
            row = await stage.openings.opening(session.id)
            return row is not None and row.state is SettlementState.SIGNED

        await until("the open is signed", signed)
        nursery.cancel_scope.cancel()
    row = await stage.openings.opening(session.id)
    assert row is not None
    stage.world.endpoint.fault = honest
    async with stage.running() as service:
        assert service.escrow is not None
        assert await service.escrow.open_hold(session) == row.attempts[0].tx_hash
        assert await stage.world.balance(stage.world.payer) == FUNDS - HOLD


async def test_a_payment_that_somebody_else_claimed_is_adopted(stage: Stage) -> None:
    """The operator claims by the final statement before the service captures."""
    async with stage.running(capture_window_ms=600_000) as service:
        assert service.escrow is not None
        session = await stage.assigned(service)
        await service.escrow.open_hold(session)
        charged = await stage.ended(session, 7)
        statement = await service.escrow.statement(session.id, clean_seconds=7, head_hash="ab" * 32, is_final=True)
        assert statement is not None
        await stage.world.give_coin(stage.world.payee)
        await claim(stage, statement)
    async with stage.running():
        await stage.until_done(session.id)
        assert await stage.world.settled_on_chain() == {session.id: charged}


async def claim(stage: Stage, statement: SignedStatement) -> None:
    """Claim as the operator's program does."""
    config = ChainConfig(
        environment="TEST", chain_id=84_532_001, chain_name="", rpc_url="", rpc_is_private=False, explorer_url="",
        usdc_address=stage.world.token, settlement_address=stage.world.settlement, is_escrow=True,
    )  # fmt: skip
    shown = Statement.model_validate(statement_json(statement, chain=config))
    await AsyncChain(stage.world.node_url).claim(LocalWallet.from_key(stage.world.payee.key), shown)


async def test_a_meter_that_the_contract_does_not_know_opens_nothing(stage: Stage) -> None:
    stage.meter_key = ids.token_bytes(32)
    async with stage.running() as service:
        assert service.escrow is not None
        session = await stage.assigned(service)
        with pytest.raises(RefusedError, match="not signed by a meter"):
            await service.escrow.open_hold(session)


async def test_a_session_under_a_mandate_may_be_requested_while_the_chain_does_not_answer(stage: Stage) -> None:
    """The contract checks the day limit itself when the session starts."""
    async with stage.running() as service:
        assert service.escrow is not None
        session = await stage.assigned(service, kind=ConsentKind.MANDATE)
        stage.world.endpoint.is_down = True
        await service.escrow.require_consent(session.terms)


async def unpaid_sessions(stage: Stage, service: ChainService, count: int) -> None:
    """Open holds that end without a charge."""
    assert service.escrow is not None
    for _ in range(count):
        session = await stage.assigned(service)
        await service.escrow.require_consent(session.terms)
        await service.escrow.open_hold(session)
        await stage.ended(session, 0)
        service.notify()
        await stage.until_done(session.id)


async def test_a_payer_whose_holds_end_without_a_charge_uses_up_its_gas_and_gets_no_more(stage: Stage) -> None:
    async with stage.running(unpaid_opens_max=2) as service:
        assert service.escrow is not None
        paid = await stage.assigned(service)
        await service.escrow.open_hold(paid)
        await stage.ended(paid, 1)
        await unpaid_sessions(stage, service, 2)
        session = await stage.assigned(service)
        with pytest.raises(RefusedError) as refused:
            await service.escrow.require_consent(session.terms)
        assert (refused.value.refusal.code, refused.value.refusal.detail) == (Code.RATE_LIMITED, "session:gasBudget")
        assert 86_000 < (refused.value.refusal.retry_after_s or 0) <= 86_400
        with pytest.raises(RefusedError) as refused:
            await stage.assigned(service, kind="exact")
        assert refused.value.refusal.detail == "session:gasBudget"
        other = Wallet()
        await service.escrow.require_consent((await stage.assigned(service, payer=other)).terms)
    async with stage.running(unpaid_opens_max=3) as service:
        assert service.escrow is not None
        await service.escrow.require_consent(session.terms)


async def test_a_session_that_was_never_opened_on_the_chain_uses_up_no_gas(stage: Stage) -> None:
    async with stage.running(unpaid_opens_max=1) as service:
        assert service.escrow is not None
        await stage.closed(await stage.assigned(service))
        poor = Wallet()
        refused = await stage.assigned(service, payer=poor)
        with pytest.raises(RefusedError):
            await service.escrow.open_hold(refused)
        await stage.closed(refused)
        for payer in (stage.world.payer, poor):
            session = await stage.assigned(service, payer=payer)
            await service.escrow.require_consent(session.terms)


async def test_a_hold_of_yesterday_uses_up_no_gas_of_today(stage: Stage) -> None:
    async with stage.running(unpaid_opens_max=1) as service:
        assert service.escrow is not None
        await unpaid_sessions(stage, service, 1)
        session = await stage.assigned(service)
        with pytest.raises(RefusedError):
            await service.escrow.require_consent(session.terms)
        yesterday_ms = clock.now_ms() - 86_460_000
        await stage.database.run(
            lambda connection: connection.execute(
                "UPDATE hold_opening SET composed_at_ms = $2 WHERE payer = $1", stage.world.payer.address.lower(),
                yesterday_ms,
            )
        )  # fmt: skip
        await service.escrow.require_consent(session.terms)
