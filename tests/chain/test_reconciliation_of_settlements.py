"""Without escrow the reconciliation compares charges, refunds, gas and write-offs with SessionSettlement."""

from collections.abc import AsyncIterator, Sequence

import pytest
import structlog.testing
from eth_account import Account

from sightline.chain.contracts.abi import call_data
from sightline.chain.rpc.health import EndpointFault
from sightline.chain.service import ChainService
from sightline.domain.books.differences import Difference, DifferenceKind
from sightline.domain.books.journal import EntryKind
from sightline.domain.units import DAY_MS
from sightline.ports.administration import RefundState
from sightline.ports.chain import RefundRequest
from sightline.ports.ledger import SettlementState
from sightline.storage.database.bridge import Database
from sightline.storage.postgres.administration import PostgresAdminStore
from sightline.storage.postgres.money.journal import PostgresJournal
from sightline.storage.postgres.money.ledger import PostgresLedger
from sightline.storage.postgres.money.reconciliation import PostgresBooks
from tests.chain.endpoint import Fault, altered_event, answering, cheaper_receipt, honest, of_method, open_endpoint
from tests.chain.world import USDC, Wallet, World, running, until

REFUND_KEY = "0x" + "5e" * 32


@pytest.fixture
async def service(world: World, database: Database) -> AsyncIterator[ChainService]:
    """A service at depth 2, and a refund account with money."""
    world.ledger, world.database = PostgresLedger(database), database
    account = Wallet(key=REFUND_KEY)
    await world.give_coin(account)
    await world.fund(account)
    await world.ready_parties()
    async with running(world, refund_key=bytes.fromhex(REFUND_KEY[2:])) as service:
        yield service


async def differences(service: ChainService, database: Database) -> Sequence[Difference]:
    return (await service.reconciler(PostgresBooks(database)).compare())[1]


async def test_charges_refunds_write_offs_and_gas_are_in_the_books_and_agree_with_the_chain(
    world: World, service: ChainService, database: Database
) -> None:
    settled, free = await world.end_session(seconds=60), await world.end_session(seconds=0)
    poor = Wallet()
    await world.ledger.track(poor.workspace_id, poor.address, now_ms=0)
    unpaid = await world.end_session(payer=poor)
    service.notify()
    await world.until_told(settled)
    request = RefundRequest(
        session_id=settled, key="one", to_address=world.payer.address, amount_micro=25_000, charged_micro=60_000,
        actor="ann", reason="dark",
    )  # fmt: skip
    refund = await service.refunds(PostgresAdminStore(database)).pay(request)
    assert refund.state is RefundState.CONFIRMED
    await world.until_state(unpaid, SettlementState.FAILED)
    await world.ledger.write_off(unpaid, reason="no money", now_ms=1)
    await world.until_state(free, SettlementState.CONFIRMED)
    await world.until_books_read()
    assert await differences(service, database) == []
    entries = [each.entry for each in await PostgresJournal(database).entries(limit=10_000)]
    of_session = {session: [each for each in entries if each.session_id == session] for session in world.sessions}
    assert {each.kind for each in of_session[settled]} == {EntryKind.SETTLED, EntryKind.REFUND, EntryKind.GAS}
    assert {each.kind for each in of_session[unpaid]} == {EntryKind.WRITE_OFF}
    [back] = [each for each in entries if each.kind is EntryKind.REFUND]
    account = str(Account.from_key(REFUND_KEY).address).lower()
    assert {line.account: line.amount for line in back.lines} == {
        f"refunds:{world.payer.address.lower()}": 25_000, f"refund-account:{account}": -25_000,
    }  # fmt: skip
    gas = {each.tx_hash for each in entries if each.kind is EntryKind.GAS}
    assert back.tx_hash in gas


async def test_a_refund_that_is_not_in_the_journal_is_found(
    world: World, service: ChainService, database: Database
) -> None:
    settled = await world.end_session(seconds=60)
    service.notify()
    await world.until_told(settled)
    request = RefundRequest(
        session_id=settled, key="two", to_address=world.payer.address, amount_micro=1, charged_micro=60_000,
        actor="ann", reason="dark",
    )  # fmt: skip
    refund = await service.refunds(PostgresAdminStore(database)).pay(request)
    await world.until_books_read()
    assert await differences(service, database) == []

    async def forget(kinds: str) -> None:
        await database.run(lambda connection: connection.execute("ALTER TABLE journal_entry DISABLE TRIGGER USER"))
        await database.run(lambda connection: connection.execute(f"DELETE FROM journal_entry WHERE kind IN ({kinds})"))

    await forget("'REFUND'")
    [lost] = await differences(service, database)
    assert (lost.kind, refund.tx_hash in lost.subject) == (DifferenceKind.MISSING, True)


async def test_money_that_somebody_sends_to_the_contract_is_stray_in_the_books(
    world: World, service: ChainService, database: Database
) -> None:
    await world.send(world.treasury_key, world.token, call_data("mint(address,uint256)", [world.settlement, USDC]))
    await world.until_books_read()
    assert await differences(service, database) == []
    head = await world.ledger.chain_head()
    assert head is not None
    sums = await PostgresBooks(database).balances(head.number)
    assert sums["stray"] == -sums["escrow"] <= -USDC


async def test_a_comparison_that_is_not_due_is_not_repeated_by_any_server(
    world: World, service: ChainService, database: Database
) -> None:
    await world.until_books_read()
    books = PostgresBooks(database)
    await service.reconciler(books).run_if_due(DAY_MS)
    first = await books.last_check()
    assert first is not None
    await world.fund(world.payer, 1)
    await world.until_books_read()
    await service.reconciler(books).run_if_due(DAY_MS)
    assert await books.last_check() == first
    await service.reconciler(books).run_if_due(0)
    again = await books.last_check()
    assert again is not None
    assert again.through_block > first.through_block


async def test_the_books_are_compared_with_another_endpoint_than_the_watcher_reads_from(
    world: World, database: Database
) -> None:
    world.ledger, world.database = PostgresLedger(database), database
    await world.ready_parties()

    async with (
        open_endpoint(world.node_url) as second,
        running(world, rpc_url=f"{world.endpoint.url},{second.url}") as service,
    ):
        session_id = await world.end_session()
        service.notify()
        await world.until_told(session_id)
        await world.until_books_read()
        assert await differences(service, database) == []
        second.fault = of_method("eth_getLogs", altered_event)
        found = await differences(service, database)
    assert DifferenceKind.AMOUNT in {each.kind for each in found}


SLOW_MS = 30_000
"""An endpoint that is slower is left out for a minute, and has no voice then: that must not be for a busy machine."""
LIES: dict[str, Fault] = {
    "amount of an event": of_method("eth_getLogs", altered_event),
    "no events": of_method("eth_getLogs", answering([])),
    "gas of a receipt": of_method("eth_getTransactionReceipt", cheaper_receipt),
}


async def amounts_of(session_id: str, database: Database) -> dict[EntryKind, list[int]]:
    entries = [each.entry for each in await PostgresJournal(database).entries(limit=10_000)]
    return {each.kind: [line.amount for line in each.lines] for each in entries if each.session_id == session_id}


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("place", [0, 1])
async def test_a_lie_of_one_of_two_endpoints_is_named_and_never_reaches_the_journal(
    world: World, database: Database, place: int, lie: str
) -> None:
    world.ledger, world.database = PostgresLedger(database), database
    await world.ready_parties()
    async with open_endpoint(world.node_url) as second:
        liar = (world.endpoint, second)[place]
        urls = f"{world.endpoint.url},{second.url}"
        with structlog.testing.capture_logs() as logs:
            async with running(world, rpc_url=urls, rpc_timeout_ms=SLOW_MS, rpc_failover_ms=SLOW_MS) as service:
                await world.until_in_step()
                liar.fault = LIES[lie]
                session_id = await world.end_session()
                service.notify()
                await world.until_told(session_id)

                async def is_named() -> bool:
                    return any(each["event"] == "chain_endpoint_disagrees" for each in logs)

                await until("the lie is logged", is_named)
                assert await amounts_of(session_id, database) == {}
                liar.fault = honest
                await world.until_books_read()
                receipt = await world.rpc.call(
                    "eth_getTransactionReceipt", (await world.record(session_id)).tx_hash
                )  # fmt: skip
                wei = int(receipt["gasUsed"], 16) * int(receipt["effectiveGasPrice"], 16)
                assert await amounts_of(session_id, database) == {
                    EntryKind.SETTLED: [60_000, -51_000, -9_000], EntryKind.GAS: [wei, -wei],
                }  # fmt: skip
                assert await differences(service, database) == []
                assert all(health.faults[EndpointFault.DISAGREES] for health in service.endpoints())


@pytest.mark.parametrize("lie", ["amount of an event", "gas of a receipt"])
async def test_a_lie_from_before_the_start_that_two_others_contradict_does_not_delay_the_journal(
    world: World, database: Database, lie: str
) -> None:
    world.ledger, world.database = PostgresLedger(database), database
    await world.ready_parties()
    world.endpoint.fault = LIES[lie]
    async with open_endpoint(world.node_url) as second, open_endpoint(world.node_url) as third:
        urls = f"{world.endpoint.url},{second.url},{third.url}"
        async with running(world, rpc_url=urls, rpc_timeout_ms=SLOW_MS, rpc_failover_ms=SLOW_MS) as service:
            session_id = await world.end_session()
            service.notify()
            await world.until_told(session_id)
            await world.until_books_read()
            assert (await amounts_of(session_id, database))[EntryKind.SETTLED] == [60_000, -51_000, -9_000]
            assert await differences(service, database) == []
            bad, *good = service.endpoints()
            assert bad.faults[EndpointFault.DISAGREES]
            assert not any(health.faults[EndpointFault.DISAGREES] for health in good)


@pytest.mark.parametrize("is_new", [True, False])
async def test_an_only_endpoint_whose_logs_contradict_its_receipts_writes_no_journal(
    world: World, database: Database, is_new: bool
) -> None:
    """A new journal takes our transactions from their receipts, one that is in step takes them from the logs."""
    world.ledger, world.database = PostgresLedger(database), database
    await world.ready_parties()
    lie = of_method("eth_getLogs", altered_event)
    if is_new:
        world.endpoint.fault = lie
    async with running(world) as service:
        if not is_new:
            await world.until_books_read()
            world.endpoint.fault = lie
        session_id = await world.end_session()
        service.notify()
        await world.until_told(session_id)

        async def is_refused() -> bool:
            return (status := service.watcher_status()) is not None and status.failures > 0

        await until("the endpoint contradicts itself", is_refused)
        assert EntryKind.SETTLED not in await amounts_of(session_id, database)
        world.endpoint.fault = honest
        await world.until_books_read()
        assert (await amounts_of(session_id, database))[EntryKind.SETTLED] == [60_000, -51_000, -9_000]
        assert await differences(service, database) == []
