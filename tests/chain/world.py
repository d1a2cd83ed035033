"""A whole chain for a test: node, endpoint with faults, ledger, service, and wallets that send transactions."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trio
from eth_account import Account

from sightline.chain.contracts.abi import SETTLED_TOPIC, TRANSFER_TOPIC, call_data
from sightline.chain.embedded.faucet import EmbeddedFaucet
from sightline.chain.rpc.client import JsonRpc, RpcOptions, open_rpc
from sightline.chain.service import ChainOptions, ChainService, open_chain
from sightline.domain.session.codec import to_doc
from sightline.domain.session.model import Ended, Session, SessionState
from sightline.domain.settlement import SettlementPayload, fee_of
from sightline.domain.units import MicroUsdc
from sightline.domain.value import replace
from sightline.ports.chain import SettlementUpdate
from sightline.ports.ledger import FundsPolicy, Ledger, LedgerQuery, SettlementRecord, SettlementState
from sightline.storage.database.bridge import Database
from sightline.storage.json import dump
from sightline.system.clock import SystemClock
from sightline.system.ids import SystemIds
from sightline.system.keccak import session_id_hash
from simulation.memory.ledger import MemoryLedger
from tests.chain.endpoint import Endpoint, open_endpoint
from tests.contract.builders import a_session, an_operator, in_phase

USDC = 1_000_000
ENDLESS = 2**256 - 1
PATIENCE_S = 60.0
LEFT_OUT_S = 60.0
"""An endpoint that answers late on a busy machine is left out for so long. The journal needs two."""
ids, clock = SystemIds(), SystemClock()


async def until(what: str, condition: Callable[[], Awaitable[bool]], patience_s: float = PATIENCE_S) -> None:
    """Wait until a condition holds; the time-out message names it."""
    with trio.move_on_after(patience_s):
        while not await condition():  # noqa: ASYNC110  # the chain has no event to wait for
            await trio.sleep(0.02)
        return
    raise AssertionError(f"not within {patience_s} s: {what}")


@dataclass
class Wallet:
    """A wallet with its key and the workspace that owns it."""

    key: str = field(default_factory=lambda: "0x" + ids.token_bytes(32).hex())
    workspace_id: str = field(default_factory=ids.uuid)

    @property
    def address(self) -> str:
        return str(Account.from_key(self.key).address)


@dataclass
class World:
    """The objects that a test uses. `rpc` and `faucet` reach the node directly, without the endpoint's faults."""

    chain_dir: Path
    node_url: str
    rpc: JsonRpc
    ledger: Ledger
    token: str
    settlement: str
    relayer_key: bytes
    treasury_key: str
    endpoint: Endpoint
    payer: Wallet = field(default_factory=Wallet)
    payee: Wallet = field(default_factory=Wallet)
    updates: list[SettlementUpdate] = field(default_factory=list)
    sessions: list[str] = field(default_factory=list)
    remembered: dict[str, Session] = field(default_factory=dict)
    database: Database | None = None

    async def send(self, wallet_key: str, to: str, data: bytes, *, tip_wei: int = 10**9, gas: int = 500_000) -> str:
        """Send a transaction of a wallet and return its hash. It is mined on return if the node mines by itself.

        To an empty address it creates a contract.
        """
        sender = str(Account.from_key(wallet_key).address)
        chain_id, nonce, price = await self.rpc.batch(
            [("eth_chainId", []), ("eth_getTransactionCount", [sender, "pending"]), ("eth_gasPrice", [])]
        )
        fields = {
            "type": 2, "chainId": int(chain_id, 16), "nonce": int(nonce, 16), "to": to, "value": 0, "data": data,
            "gas": gas, "maxFeePerGas": 4 * int(price, 16) + tip_wei, "maxPriorityFeePerGas": tip_wei,
        }  # fmt: skip
        raw = Account.sign_transaction(fields, wallet_key).raw_transaction
        return str(await self.rpc.call("eth_sendRawTransaction", "0x" + bytes(raw).hex()))

    async def fund(self, wallet: Wallet, micro: int = 100 * USDC) -> None:
        """Mint test USDC and give native coin from the treasury."""
        await self.send(self.treasury_key, self.token, call_data("mint(address,uint256)", [wallet.address, micro]))

    async def give_coin(self, wallet: Wallet) -> None:
        sender = str(Account.from_key(self.treasury_key).address)
        nonce, chain_id = await self.rpc.batch([("eth_getTransactionCount", [sender, "pending"]), ("eth_chainId", [])])
        fields = {
            "type": 2, "chainId": int(chain_id, 16), "nonce": int(nonce, 16), "to": wallet.address,
            "value": 10**19, "data": b"", "gas": 21_000, "maxFeePerGas": 10**12, "maxPriorityFeePerGas": 10**9,
        }  # fmt: skip
        raw = Account.sign_transaction(fields, self.treasury_key).raw_transaction
        await self.rpc.call("eth_sendRawTransaction", "0x" + bytes(raw).hex())

    async def approve(self, wallet: Wallet, micro: int = ENDLESS) -> None:
        await self.send(wallet.key, self.token, call_data("approve(address,uint256)", [self.settlement, micro]))

    async def approve_above(self, wallet: Wallet, micro: int) -> str:
        """Approve with a tip above all other transactions, so that it is mined first."""
        data = call_data("approve(address,uint256)", [self.settlement, micro])
        return await self.send(wallet.key, self.token, data, tip_wei=10**11)

    async def ready_parties(self, micro: int = 100 * USDC) -> None:
        """Fund both parties, approve the payer's allowance, and track both wallets."""
        for wallet in (self.payer, self.payee):
            await self.ledger.track(wallet.workspace_id, wallet.address, now_ms=clock.now_ms())
        await self.give_coin(self.payer)
        await until("the payer has coin", self._payer_has_coin)
        await self.fund(self.payer, micro)
        await self.approve(self.payer)

    async def _payer_has_coin(self) -> bool:
        return bool(int(await self.rpc.call("eth_getBalance", self.payer.address, "latest"), 16))

    async def end_session(
        self, *, rate: int = 1_000, seconds: int = 60, fee_bps: int = 1_500, payer: Wallet | None = None
    ) -> str:
        """End a session and return its id: its hold becomes its charge and its settlement is composed."""
        session_id, now_ms = ids.uuid(), clock.now_ms()
        self.sessions.append(session_id)
        source = payer or self.payer
        total = rate * seconds
        fee = fee_of(MicroUsdc(total), fee_bps)
        await self.ledger.take_hold(session_id, source.address, total * 2, FundsPolicy.ADVISORY, now_ms=now_ms)
        await self.ledger.charge_hold(session_id, total)
        await self._record_end(session_id, source, rate=rate, seconds=seconds, fee_bps=fee_bps)
        await self.ledger.compose(
            SettlementPayload(
                session_id=session_id, from_address=source.address, to_address=self.payee.address,
                to_amount=MicroUsdc(total - fee), fee_amount=fee, rate=MicroUsdc(rate), chargeable_seconds=seconds,
                consumer_workspace_id=source.workspace_id, operator_workspace_id=self.payee.workspace_id,
                platform_fee_bps=fee_bps,
            ),
            now_ms=now_ms,
        )  # fmt: skip
        return session_id

    async def _record_end(self, session_id: str, payer: Wallet, *, rate: int, seconds: int, fee_bps: int) -> None:
        """Store the ended session that proves a settlement in the store used with the ledger."""
        operator = replace(an_operator(self.payee.workspace_id), wallet_address=self.payee.address)
        session = a_session(
            id=session_id, consumer_workspace_id=payer.workspace_id, payer_address=payer.address,
            rate=MicroUsdc(rate), platform_fee_bps=fee_bps,
        )  # fmt: skip
        ended = in_phase(session, SessionState.ENDED, operator)
        assert isinstance(ended.phase, Ended)
        phase = replace(ended.phase, clean_seconds=seconds, charged=MicroUsdc(rate * seconds))
        await self.remember(replace(ended, phase=phase))

    async def remember(self, session: Session) -> None:
        """Store a session where the ledger's `proofs` finds it."""
        if isinstance(self.ledger, MemoryLedger):
            self.remembered[session.id] = session
            self.ledger.session_of = self.remembered.get
        else:
            assert self.database is not None
            await insert_session(self.database, session)

    async def record(self, session_id: str) -> SettlementRecord:
        record = await self.ledger.settlement(session_id)
        assert record is not None
        return record

    async def until_state(
        self, session_id: str, state: SettlementState, patience_s: float = PATIENCE_S
    ) -> SettlementRecord:
        async def reached() -> bool:
            return (await self.record(session_id)).state is state

        try:
            await until(f"settlement is {state}", reached, patience_s)
        except AssertionError as error:
            raise AssertionError(f"{error}; it is {await self.record(session_id)}") from None
        return await self.record(session_id)

    async def until_told(self, *session_ids: str, patience_s: float = PATIENCE_S) -> None:
        async def told() -> bool:
            return set(session_ids) <= {update.session_id for update in self.updates}

        await until("settlements are told", told, patience_s)

    async def until_in_step(self, patience_s: float = LEFT_OUT_S + PATIENCE_S) -> None:
        """Wait until the stored wallets match the chain's head and no charge is held."""

        async def in_step() -> bool:
            head = int(await self.rpc.call("eth_blockNumber"), 16)
            cursor = await self.ledger.chain_head()
            views = [await self.ledger.wallet(wallet.workspace_id) for wallet in (self.payer, self.payee)]
            return (
                cursor is not None
                and cursor.number == head
                and all(view is not None and view.last_sync_block == head for view in views)
            )

        await until("the ledger is in step with the chain", in_step, patience_s)

    async def balance(self, wallet: Wallet) -> int:
        data = call_data("balanceOf(address)", [wallet.address])
        return int(await self.rpc.call("eth_call", {"to": self.token, "data": "0x" + data.hex()}, "latest"), 16)

    async def settled_on_chain(self) -> dict[str, int]:
        """Read the totals of this world's settled sessions by session id, from the chain alone."""
        logs = await self.rpc.call(
            "eth_getLogs",
            {"address": self.settlement, "topics": [SETTLED_TOPIC], "fromBlock": "0x0", "toBlock": "latest"},
        )
        hashes = [log["topics"][1] for log in logs]
        assert len(hashes) == len(set(hashes)), "a session settled twice on the chain"
        totals = {log["topics"][1]: int(log["data"][2:66], 16) + int(log["data"][66:130], 16) for log in logs}
        mine = {session_id: session_id_hash(session_id) for session_id in self.sessions}
        return {session_id: totals[hashed] for session_id, hashed in mine.items() if hashed in totals}

    async def transfers_on_chain(self, wallet: Wallet) -> int:
        """Sum the token's logs of a wallet."""
        word = "0x" + "0" * 24 + wallet.address[2:].lower()
        total = 0
        for sign, topics in ((1, [TRANSFER_TOPIC, None, word]), (-1, [TRANSFER_TOPIC, word])):
            query = {"address": self.token, "topics": topics, "fromBlock": "0x0", "toBlock": "latest"}
            total += sign * sum(int(log["data"], 16) for log in await self.rpc.call("eth_getLogs", query))
        return total

    async def ledger_sum(self, wallet: Wallet) -> int:
        """Sum the ledger rows of a wallet."""
        rows = await self.ledger.ledger(wallet.workspace_id, LedgerQuery(limit=100_000))
        mine = wallet.address.lower()
        total = 0
        for row in rows:
            if row.removed or row.kind.value == "APPROVAL":
                continue
            total += row.amount_micro * ((row.to_address == mine) - (row.from_address == mine))
        return total

    async def until_books_read(self, patience_s: float = LEFT_OUT_S + PATIENCE_S) -> None:
        """Wait until the journal has every block that is mined now."""
        await self.until_in_step(patience_s)

        async def is_read() -> bool:
            head, through = await self.ledger.chain_head(), await self.ledger.books_read_through()
            return head is not None and through is not None and through >= head.number

        await until("the journal is read", is_read, patience_s)

    async def assert_books_balance(self) -> None:
        """Assert that ledger, stored wallets and chain agree for both parties to the last micro-USDC."""
        await self.until_in_step()
        for wallet in (self.payer, self.payee):
            view = await self.ledger.wallet(wallet.workspace_id)
            assert view is not None
            on_chain = await self.balance(wallet)
            assert view.balance_micro == on_chain
            assert await self.ledger_sum(wallet) == on_chain == await self.transfers_on_chain(wallet)


_INSERT_SESSION = """
INSERT INTO session (id, shard, version, state, consumer_workspace_id, operator_workspace_id, lat, lng, created_at_ms,
  wait_deadline_ms, doc, updated_at_ms)
VALUES ($1, 0, 1, $2, $3, $4, 0, 0, 0, 0, $5, 0)
"""


async def insert_session(database: Database, session: Session) -> None:
    """Insert the row of an ended session."""
    assert isinstance(session.phase, Ended)
    columns = (
        session.id, session.state.value, session.terms.consumer_workspace_id, session.phase.operator.workspace_id,
        dump(to_doc(session)),
    )  # fmt: skip
    await database.run(lambda connection: connection.execute(_INSERT_SESSION, *columns))


@asynccontextmanager
async def open_world(chain_dir: Path, *, ledger: Ledger | None = None) -> AsyncIterator[World]:
    """Open a world on the embedded chain that runs in this directory."""
    report = json.loads(await trio.Path(chain_dir / "endpoint.json").read_text())
    keys = json.loads(await trio.Path(chain_dir / "keys.json").read_text())
    url = f"http://127.0.0.1:{report['port']}"
    async with open_endpoint(url) as endpoint, open_rpc(url, RpcOptions(timeout_ms=30_000), ids) as rpc:
        yield World(
            chain_dir=chain_dir,
            node_url=url,
            rpc=rpc,
            ledger=ledger or MemoryLedger(),
            token=report["usdcAddress"],
            settlement=report["settlementAddress"],
            relayer_key=bytes.fromhex(keys["relayer"][2:]),
            treasury_key=keys["deployer"],
            endpoint=endpoint,
        )


def options_for(world: World, **changed: Any) -> ChainOptions:
    """The service's options for a world: through its endpoint, with short intervals, at depth 0."""
    settings: dict[str, Any] = {
        "rpc_url": world.endpoint.url, "usdc_address": world.token,
        "settlement_address": world.settlement, "relayer_key": world.relayer_key, "depth": 0, "poll_ms": 30,
        "rpc_timeout_ms": 3_000,
    }  # fmt: skip
    return ChainOptions(**(settings | changed))


@asynccontextmanager
async def running(world: World, **changed: Any) -> AsyncIterator[ChainService]:
    """Run the service on a world; its updates go to `world.updates`."""

    async def told(update: SettlementUpdate) -> None:
        world.updates.append(update)

    options = options_for(world, **changed)
    async with (
        open_chain(options, ledger=world.ledger, clock=clock, ids=ids) as service,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(service.run_watcher)
        nursery.start_soon(service.run_relayer, told)
        yield service
        nursery.cancel_scope.cancel()


def faucet_of(world: World) -> EmbeddedFaucet:
    return EmbeddedFaucet(world.rpc, world.chain_dir)
