"""Escrow on anvil: reorganisations of opens and captures, and deadlines after which parties help themselves."""

import os
import random
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
import trio

from sightline.chain.contracts.abi import call_data
from sightline.chain.contracts.messages import INTERIM_DELAY_S, RECLAIM_DELAY_S
from sightline.chain.service import ChainService
from sightline.domain.books.differences import Difference, DifferenceKind
from sightline.domain.session.model import Session
from sightline.domain.units import MicroUsdc
from sightline.http.schemas.escrow import statement_json
from sightline.ports.chain import ChainConfig
from sightline.ports.escrow import SignedPermit
from sightline.ports.ledger import SettlementState
from sightline.storage.database.bridge import Database
from sightline.storage.postgres.money.extensions import PostgresExtensions
from sightline.storage.postgres.money.reconciliation import PostgresBooks
from sightline_client import AsyncChain, ChainError
from sightline_client.models import Statement
from sightline_client.wallet import LocalWallet
from tests.chain.endpoint import Forward, Request, Response, answering, honest
from tests.chain.escrow.stage import DURATION_S, HOLD, KINDS, RATE, Kind, Stage
from tests.chain.interop.anvil import CHAIN_ID, Anvil, open_anvil
from tests.chain.interop.conftest import a_world_on, mining
from tests.chain.world import Wallet, until

pytestmark = pytest.mark.interop
SESSIONS = int(os.environ.get("SIGHTLINE_TEST_ESCROWS", "40"))


@pytest.fixture
async def anvil() -> AsyncIterator[Anvil]:
    async with open_anvil(is_escrow=True) as anvil:
        yield anvil


@pytest.fixture
async def stage(anvil: Anvil, database: Database) -> AsyncIterator[Stage]:
    """A funded payer with an allowance on anvil, automine off."""
    async with a_world_on(anvil) as world:
        stage = Stage.on(world, database, bytes.fromhex(anvil.meter_key[2:]))
        async with mining(anvil):
            await world.ready_parties(10**9)
            await world.give_coin(world.payee)
        await anvil.mine(2)
        yield stage


@pytest.mark.parametrize("depth", [1, 2, 3])
async def test_an_open_that_a_reorganisation_removed_is_opened_again(stage: Stage, anvil: Anvil, depth: int) -> None:
    before = await stage.world.balance(stage.world.payer)
    async with stage.running(depth=4) as service:
        assert service.escrow is not None
        async with mining(anvil):
            session = await stage.assigned(service)
            await service.escrow.open_hold(session)
        opened = await stage.openings.opening(session.id)
        assert opened is not None
        head = int(await anvil.rpc.call("eth_blockNumber"), 16)
        assert opened.block_number is not None
        await anvil.reorganise(head - opened.block_number + depth)
        await stage.ended(session, 5)
        service.notify()
        async with mining(anvil):
            await stage.until_done(session.id)
        assert await stage.world.balance(stage.world.payer) == before - 5_000
        assert await stage.held() == 0
        await stage.world.assert_books_balance()


@pytest.mark.parametrize("depth", [1, 2, 3])
async def test_an_extension_that_a_reorganisation_removed_is_added_again_before_it_counts(
    stage: Stage, anvil: Anvil, depth: int
) -> None:
    before = await stage.world.balance(stage.world.payer)
    extensions = PostgresExtensions(stage.database)
    async with stage.running(depth=4) as service:
        escrow = service.escrow
        assert escrow is not None
        async with mining(anvil):
            session = await stage.assigned(service)
            await escrow.open_hold(session)
        await anvil.mine(5)
        session = await stage.extending(service, await stage.live(session), 30)
        assert session.extending is not None
        extension_id = session.extending.id
        answers: list[str] = []

        async def extend() -> None:
            answers.append(await escrow.extend_hold(session))

        async def is_mined() -> bool:
            row = await extensions.extension(extension_id)
            return row is not None and row.state is SettlementState.MINED

        async with trio.open_nursery() as nursery:
            nursery.start_soon(extend)
            await anvil.until_pending()
            await anvil.mine(depth)
            await until("the extension is in a block", is_mined)
            assert await stage.held() == HOLD + 30_000
            await anvil.reorganise(depth)
            assert await stage.held() == HOLD, "the block is gone"
            assert answers == [], "what is not deep is not counted"
            async with mining(anvil):
                await until("the extension counts", lambda: _is_answered(answers))
        assert await stage.held() == HOLD + 30_000, "it was added once"
        session = await stage.extended(session, answers[0])
        await stage.ended(session, 5)
        service.notify()
        async with mining(anvil):
            await stage.until_done(session.id)
        assert await stage.world.balance(stage.world.payer) == before - 5_000
        assert await stage.held() == 0
        await stage.world.assert_books_balance()


async def test_what_a_deep_reorganisation_leaves_of_a_longer_session_is_paid_and_told(
    stage: Stage, anvil: Anvil
) -> None:
    """It removes extensions below the depth, and the contract cannot take their amounts again."""
    world, more_s, depth = stage.world, 30, 2
    async with stage.running(depth=depth, capture_window_ms=100) as service:
        assert service.escrow is not None
        async with mining(anvil):
            settling, living = [await stage.live(await _opened(stage, service)) for _ in range(2)]
        await anvil.mine(5)
        kept = int(await anvil.rpc.call("eth_blockNumber"), 16)
        async with mining(anvil):
            settling, living = [await _extended(stage, service, session, more_s) for session in (settling, living)]
            await anvil.rpc.call("evm_increaseTime", DURATION_S + more_s)
            charged = await stage.ended(settling, DURATION_S + more_s)
            assert charged == HOLD + more_s * RATE
            service.notify()
            await stage.until_done(settling.id)
        paid = await world.balance(world.payee)
        await anvil.mine(depth)
        head = int(await anvil.rpc.call("eth_blockNumber"), 16)
        await anvil.reorganise(head - kept)
        assert await stage.held() == 2 * HOLD, "extensions and capture are gone"
        spent = call_data("transfer(address,uint256)", [Wallet().address, await world.balance(world.payer)])
        await world.send(world.payer.key, world.token, spent, tip_wei=10**11)
        await anvil.rpc.call("evm_increaseTime", DURATION_S + more_s)  # the removed blocks had it
        async with mining(anvil):
            await stage.until_done(settling.id, SettlementState.MISMATCHED)
            await until("the live session's part is lost", lambda: _is_lost(stage, living.id))
            statement = await service.escrow.statement(
                living.id, clean_seconds=DURATION_S + more_s, head_hash="cd" * 32, is_final=True
            )
        told = (await world.record(settling.id)).on_chain
        assert told is not None
        assert told.to_amount + told.fee_amount == HOLD, "it tells what the contract has settled"
        assert await world.balance(world.payee) == told.to_amount < paid
        assert await stage.held() == HOLD
        assert statement is not None
        assert statement.clean_seconds == DURATION_S, "more than the hold has cannot be claimed"
        assert not [each for each in (await _differences(stage, service)) if each.kind is not DifferenceKind.HOLD]


async def _opened(stage: Stage, service: ChainService) -> Session:
    assert service.escrow is not None
    session = await stage.assigned(service)
    await service.escrow.open_hold(session)
    return session


async def _extended(stage: Stage, service: ChainService, session: Session, seconds: int) -> Session:
    assert service.escrow is not None
    asking = await stage.extending(service, session, seconds)
    return await stage.extended(asking, await service.escrow.extend_hold(asking))


async def _is_lost(stage: Stage, session_id: str) -> bool:
    return session_id in await stage.openings.lost()


async def _differences(stage: Stage, service: ChainService) -> Sequence[Difference]:
    await stage.world.until_books_read()
    return (await service.reconciler(PostgresBooks(stage.database)).compare())[1]


async def _is_answered(answers: list[str]) -> bool:
    return bool(answers)


async def statement_of(stage: Stage, anvil: Anvil, *, seconds: int, tmp_path: Path) -> Statement:
    """Open a hold, and return an interim statement; the service is gone afterwards."""
    async with stage.running() as service:
        assert service.escrow is not None
        async with mining(anvil):
            session = await stage.assigned(service)
            await service.escrow.open_hold(session)
        signed = await service.escrow.statement(session.id, clean_seconds=seconds, head_hash="cd" * 32, is_final=False)
        assert signed is not None
        config = ChainConfig(
            environment="TEST", chain_id=CHAIN_ID, chain_name="", rpc_url="", rpc_is_private=False, explorer_url="",
            usdc_address=stage.world.token, settlement_address=stage.world.settlement, is_escrow=True,
        )  # fmt: skip
        return Statement.model_validate(statement_json(signed, chain=config))


async def test_an_operator_alone_claims_what_the_last_statement_says(
    stage: Stage, anvil: Anvil, tmp_path: Path
) -> None:
    statement = await statement_of(stage, anvil, seconds=20, tmp_path=tmp_path)
    before = await stage.world.balance(stage.world.payer)
    chain, operator = AsyncChain(anvil.url), LocalWallet.from_key(stage.world.payee.key)
    async with mining(anvil):
        with pytest.raises(ChainError, match="Nothing was sent"):
            await chain.claim(operator, statement)
        await anvil.rpc.call("evm_increaseTime", DURATION_S + INTERIM_DELAY_S)
        await chain.claim(operator, statement)
    assert await stage.world.balance(stage.world.payee) == 17_000, "20,000 without a fee of 15 %"
    assert await stage.world.balance(stage.world.payer) == before + HOLD - 20_000
    assert await stage.in_contract() == 0


async def test_a_payer_alone_gets_everything_back_two_days_later(stage: Stage, anvil: Anvil, tmp_path: Path) -> None:
    statement = await statement_of(stage, anvil, seconds=0, tmp_path=tmp_path)
    chain, payer = AsyncChain(anvil.url), LocalWallet.from_key(stage.world.payer.key)
    before = await stage.world.balance(stage.world.payer)
    async with mining(anvil):
        with pytest.raises(ChainError, match="Nothing was sent"):
            await chain.reclaim(payer, statement)
        await anvil.rpc.call("evm_increaseTime", DURATION_S + RECLAIM_DELAY_S)
        await chain.reclaim(payer, statement)
    assert await stage.world.balance(stage.world.payer) == before + HOLD
    assert await stage.in_contract() == 0


async def test_random_sessions_add_up_through_reorganisations(stage: Stage, anvil: Anvil) -> None:
    """Opens of all kinds and captures, while blocks are removed and the endpoint loses and falsifies answers."""
    seed = random.randrange(2**32)
    dice = random.Random(seed)
    world = stage.world
    await anvil.mine(10)  # no reorganisation of the storm reaches funds and allowance
    start = await world.balance(world.payer)

    async def unlucky(request: Request, forward: Forward) -> Response | None:
        roll = dice.random()
        if roll < 0.05 and request["method"] == "eth_getLogs":
            return await answering([])(request, forward)
        if roll < 0.05 and request["method"] == "eth_getTransactionReceipt":
            return await answering(None)(request, forward)
        return await forward(request)

    async def storm() -> None:
        while True:
            await trio.sleep(dice.uniform(0.05, 0.4))
            await anvil.mine(dice.randint(1, 2))
            if dice.random() < 0.4:
                await anvil.reorganise(dice.randint(1, 3))

    charges: dict[str, int] = {}
    async with stage.running(depth=2, replace_ms=5_000, capture_window_ms=500) as service:
        # From here on: a server repeats its start when the endpoint does not answer, and this stage does not.
        world.endpoint.weather = lambda: dice.choice(["fine"] * 12 + ["lose_request", "lose_reply"])
        escrow = service.escrow
        assert escrow is not None

        async def film(kind: Kind, seconds: int, *, is_cancelled: bool) -> None:
            session = await stage.assigned(service, kind=kind, payee=dice.choice([world.payee, Wallet()]))
            with trio.move_on_after(dice.uniform(0.2, 3)):
                await escrow.open_hold(session)
            if is_cancelled:
                await stage.closed(session)
            else:
                await stage.until_opened(session.id)
                charges[session.id] = await stage.ended(session, seconds)
            service.notify()

        world.endpoint.fault = unlucky
        async with trio.open_nursery() as storming:
            storming.start_soon(storm)
            async with trio.open_nursery() as filming:
                for _ in range(SESSIONS):
                    kind, seconds = dice.choice(KINDS), dice.randint(0, 30)
                    filming.start_soon(lambda k=kind, s=seconds: film(k, s, is_cancelled=dice.random() < 0.1))
                    await trio.sleep(0.05)
            storming.cancel_scope.cancel()
        world.endpoint.fault, world.endpoint.weather = honest, lambda: "fine"
        over = {SettlementState.CONFIRMED, SettlementState.WRITTEN_OFF}
        async with mining(anvil):

            async def all_over() -> bool:
                records = [await world.record(session_id) for session_id in world.sessions]
                return all(record.state in over for record in records)

            await until(f"everything is settled in the quiet after the storm, seed {seed}", all_over, 120)
        await anvil.mine(3)
        assert {key: value for key, value in (await world.settled_on_chain()).items() if value} == {
            key: value for key, value in charges.items() if value
        }, f"seed {seed}"
        assert await stage.held() == 0, f"seed {seed}"
        assert await stage.in_contract() == 0, f"seed {seed}"
        assert await world.balance(world.payer) == start - sum(charges.values()), f"seed {seed}"
        await world.assert_books_balance()


async def test_a_payer_without_coin_gets_an_allowance_by_a_permit(stage: Stage, anvil: Anvil) -> None:
    payer = Wallet()
    async with mining(anvil):
        await stage.world.fund(payer)
    async with stage.running(depth=1) as service, mining(anvil):
        assert service.escrow is not None
        terms = await service.escrow.permit_terms(payer.address, MicroUsdc(5_000_000), stage.far_s)
        permit = SignedPermit(
            owner=payer.address.lower(), spender=terms.spender.lower(), amount=terms.amount, nonce=terms.nonce,
            deadline_s=terms.deadline_s, signature=LocalWallet.from_key(payer.key).sign_typed_data(terms.typed_data),
        )  # fmt: skip
        relayed = await service.escrow.relay_permit(permit, payer.address)
        data = call_data("allowance(address,address)", [payer.address, stage.world.settlement])
        allowed = await stage.world.rpc.call("eth_call", {"to": stage.world.token, "data": "0x" + data.hex()}, "latest")
        assert int(allowed, 16) == 5_000_000
        assert await stage.world.rpc.call("eth_getBalance", payer.address, "latest") == "0x0"
        assert (await service.escrow.relay_permit(permit, payer.address)).tx_hash == relayed.tx_hash
