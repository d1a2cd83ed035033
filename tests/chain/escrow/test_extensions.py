"""The contract adds to the hold of a LIVE session once for each extension, by each way of consent; the books follow."""

import pytest

from sightline.domain.errors import RefusedError
from sightline.domain.escrow import ConsentKind
from sightline.domain.session.model import Session
from sightline.domain.units import MicroUsdc, usdc_text
from sightline.domain.value import replace
from sightline.ports.ledger import SettlementState
from sightline.storage.postgres.money.extensions import PostgresExtensions
from tests.chain.endpoint import lose_reply, of_method, some_times
from tests.chain.escrow.stage import KINDS, RATE, Kind, Stage
from tests.chain.escrow.test_escrow_relayer import FUNDS, SEND, until_books_balance
from tests.chain.world import Wallet

FIRST_S = 10
"""The contract takes no more seconds than have passed, and 30."""
HOLD = FIRST_S * RATE
MORE_S = 30
MORE = MORE_S * RATE


async def allowance_for(stage: Stage, kind: Kind) -> None:
    if kind in {ConsentKind.CONSENT, ConsentKind.MANDATE}:
        await stage.world.give_coin(stage.world.payer)
        await stage.world.approve(stage.world.payer)


async def a_live_session(stage: Stage, service, kind: Kind = ConsentKind.AUTHORIZATION) -> Session:
    session = await stage.assigned(service, kind=kind, duration_s=FIRST_S)
    await service.escrow.open_hold(session)
    return await stage.live(session)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_longer_session_is_charged_past_its_first_hold_and_the_rest_returns(stage: Stage, kind: Kind) -> None:
    await allowance_for(stage, kind)
    before = await stage.held()
    async with stage.running() as service:
        session = await a_live_session(stage, service, kind)
        session = await stage.extending(service, session, MORE_S, kind)
        await service.escrow.require_extension(session, session.extending)
        tx_hash = await service.escrow.extend_hold(session)
        assert await stage.held() == before + HOLD + MORE
        assert await service.escrow.extend_hold(session) == tx_hash, "a repeat adds nothing"
        assert await stage.held() == before + HOLD + MORE
        session = await stage.extended(session, tx_hash)
        statement = await service.escrow.statement(session.id, clean_seconds=5, head_hash="ab" * 32, is_final=False)
        assert statement.hold.max_amount + statement.hold.extended == HOLD + MORE
        charged = await stage.ended(session, FIRST_S + 10)
        assert charged > HOLD
        service.notify()
        await stage.until_done(session.id)
        assert await stage.held() == before
        assert await stage.world.balance(stage.world.payer) == FUNDS - charged
        await until_books_balance(stage)


async def test_a_second_extension_is_signed_over_the_hold_with_the_first(stage: Stage) -> None:
    before = await stage.held()
    async with stage.running() as service:
        session = await a_live_session(stage, service)
        for number in (1, 2):
            session = await stage.extending(service, session, MORE_S)
            session = await stage.extended(session, await service.escrow.extend_hold(session))
            assert await stage.held() == before + HOLD + number * MORE
        await stage.ended(session, 5)
        service.notify()
        await stage.until_done(session.id)
        assert await stage.held() == before
        await until_books_balance(stage)


@pytest.mark.parametrize("lost", [1, 3])
async def test_an_extension_whose_answer_is_lost_is_sent_again_and_added_once(stage: Stage, lost: int) -> None:
    before = await stage.held()
    async with stage.running() as service:
        session = await a_live_session(stage, service)
        session = await stage.extending(service, session, MORE_S)
        stage.world.endpoint.fault = of_method(SEND, some_times(lost, lose_reply))
        await service.escrow.extend_hold(session)
        row = await PostgresExtensions(stage.database).extension(session.extending.id)
        assert row is not None
        assert len(row.attempts) == 1
        assert await stage.held() == before + HOLD + MORE


async def test_a_payer_without_the_amount_is_refused_and_nothing_is_added_later(stage: Stage) -> None:
    payer = Wallet()
    await stage.ledger.track(payer.workspace_id, payer.address, now_ms=0)
    await stage.world.fund(payer, HOLD)
    before = await stage.held()
    async with stage.running() as service:
        session = await stage.assigned(service, payer=payer, duration_s=FIRST_S)
        await service.escrow.open_hold(session)
        session = await stage.extending(service, await stage.live(session), MORE_S, payer=payer)
        with pytest.raises(RefusedError) as refused:
            await service.escrow.extend_hold(session)
        assert refused.value.refusal.detail == "session:fundsNotHeld"
        assert f"the {usdc_text(MORE)} USDC of an extension by {MORE_S} s" in refused.value.refusal.message
        row = await PostgresExtensions(stage.database).extension(session.extending.id)
        assert row is not None
        assert (row.state, row.attempts) == (SettlementState.WRITTEN_OFF, ())
        await stage.world.fund(payer, MORE)
        tx_hash = await service.escrow.extend_hold(session)  # its call is repeated
        assert tx_hash
        assert await stage.held() == before + HOLD + MORE


async def test_a_row_that_no_session_asks_for_is_not_signed(stage: Stage) -> None:
    """Write access to the outbox alone adds nothing to a hold."""
    before = await stage.held()
    async with stage.running() as service:
        session = await a_live_session(stage, service)
        asking = await stage.extending(service, session, MORE_S)
        await stage.store(session)
        with pytest.raises(RefusedError) as refused:
            await service.escrow.extend_hold(asking)
        assert "not proved" in refused.value.refusal.message
        assert await stage.held() == before + HOLD


@pytest.mark.parametrize("field", ["amount", "openBy"])
async def test_a_signature_over_other_terms_is_refused_before_the_chain_is_asked(stage: Stage, field: str) -> None:
    async with stage.running() as service:
        session = await stage.extending(service, await a_live_session(stage, service), MORE_S)
        asked = session.extending
        consent = asked.consent
        forged = (
            replace(asked, amount=MicroUsdc(asked.amount + 1))
            if field == "amount"
            else replace(asked, consent=replace(consent, open_by_s=consent.open_by_s + 1))
        )
        with pytest.raises(RefusedError) as refused:
            await service.escrow.require_extension(session, forged)
        assert refused.value.refusal.detail == "session:consent"
        expired = replace(asked, consent=replace(consent, open_by_s=1))
        with pytest.raises(RefusedError):
            await service.escrow.require_extension(session, expired)


async def test_a_session_that_ends_while_its_extension_is_on_its_way_is_settled_from_the_larger_hold(
    stage: Stage,
) -> None:
    before = await stage.held()
    async with stage.running() as service:
        session = await stage.extending(service, await a_live_session(stage, service), MORE_S)
        await service.escrow.extend_hold(session)
        charged = await stage.ended(session, 7)  # it never counted the extension
        service.notify()
        await stage.until_done(session.id)
        assert await stage.held() == before
        assert await stage.world.balance(stage.world.payer) == FUNDS - charged
        await until_books_balance(stage)


async def test_a_session_whose_extension_is_not_on_the_chain_gets_what_its_hold_pays(stage: Stage) -> None:
    """As after a reorganisation beyond the depth that removed the extension for good."""
    before = await stage.held()
    async with stage.running() as service:
        session = await a_live_session(stage, service)
        session = await stage.extended(await stage.extending(service, session, MORE_S), "0x" + "ab" * 32)
        assert await stage.ended(session, FIRST_S + 10) > HOLD
        service.notify()
        await stage.until_done(session.id, SettlementState.MISMATCHED)
        assert await stage.held() == before
        assert await stage.world.balance(stage.world.payer) == FUNDS - HOLD


@pytest.mark.parametrize("is_extended_again", [False, True])
async def test_an_extension_that_was_given_up_and_is_mined_all_the_same_does_not_stop_what_follows(
    stage: Stage, is_extended_again: bool
) -> None:
    """As after wrong answers about its transaction: its caller was refused, and the contract has its amount."""
    before = await stage.held()
    async with stage.running() as service:
        live = await a_live_session(stage, service)
        asking = await stage.extending(service, live, MORE_S)
        await service.escrow.extend_hold(asking)
        await stage.store(live)
        give_up = (
            "UPDATE hold_extension SET state = 'WRITTEN_OFF', tx_hash = NULL, block_number = NULL, block_hash = NULL, "
            "log_index = NULL, confirmed_at_ms = NULL WHERE session_id = $1"
        )
        await stage.database.run(lambda connection: connection.execute(give_up, asking.extending.id))
        if is_extended_again:
            # Another amount, because an extension of the same amount is matched with the one that was mined. The
            # payer's signature names the hold as it was before that one, so the first try is refused.
            with pytest.raises(RefusedError):
                await service.escrow.extend_hold(await stage.extending(service, live, 1))
            live = await stage.extending(service, live, 1)
            live = await stage.extended(live, await service.escrow.extend_hold(live))
            assert await stage.held() == before + HOLD + MORE + RATE
        charged = await stage.ended(live, 7)
        service.notify()
        await stage.until_done(live.id)
        assert await stage.held() == before
        assert await stage.world.balance(stage.world.payer) == FUNDS - charged
        await until_books_balance(stage)
