"""Thirty simulated days on SessionEscrow: does the reconciliation stay silent, and how long does it take?

The contract runs on an EVM whose clock the program sets, so its logs are real and 30 days take minutes. Sessions are
captured in batches, cost nothing, are extended, are abandoned until somebody reclaims them, or are refused by their
payee, who withdraws later; now and then money comes without a session. The watcher reads the blocks into a Postgres of
the program's own, and the reconciliation compares everything.
"""

import argparse
import dataclasses
import json
import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import httpx
import trio

from sightline.chain.contracts.messages import EscrowHold
from sightline.chain.reconcile.reconciler import Reconciler
from sightline.chain.reconcile.source import ChainSource
from sightline.chain.rpc.client import JsonRpc, RpcOptions
from sightline.chain.rpc.reader import RpcReader
from sightline.chain.signer import Signer
from sightline.chain.watcher.events import bloom_mask
from sightline.chain.watcher.watcher import Watcher, WatcherOptions
from sightline.ports.ledger import ChainIdentity
from sightline.storage.database.bridge import Database, DatabaseOptions, open_database
from sightline.storage.database.migrate import migrate
from sightline.storage.database.pool import Connection, PoolOptions
from sightline.storage.embedded.server import EmbeddedPostgresOptions, run_embedded_postgres
from sightline.storage.postgres.money.ledger import PostgresLedger
from sightline.storage.postgres.money.reconciliation import PostgresBooks
from sightline.system.clock import SystemClock
from sightline.system.ids import SystemIds
from sightline.system.keccak import keccak256, session_id_hash
from tests.chain.contracts.escrow_world import RATE, SECONDS, EscrowWorld, escrow_world
from tests.chain.contracts.ground import CHAIN_ID, DirectGround, Done, ask

DAYS: Final = 30
BATCH: Final = 50
STORED_AT_ONCE: Final = 100
RECLAIMED_AFTER_S: Final = SECONDS + 172_800
GAS_PRICE_WEI: Final = 10**9
CONSUMER: Final = "11111111-1111-4111-8111-111111111111"
OPERATOR: Final = "22222222-2222-4222-8222-222222222222"


@dataclass
class RecordedGround:
    """A ground that keeps each call as a block with one transaction, and answers as a node."""

    ground: DirectGround
    blocks: list[dict[str, Any]] = field(default_factory=list)
    logs: list[list[dict[str, Any]]] = field(default_factory=list)
    receipts: dict[str, dict[str, Any]] = field(default_factory=dict)
    by_hash: dict[str, int] = field(default_factory=dict)
    shown: int = 0
    """The newest block that the node reports."""

    def __post_init__(self) -> None:
        self._mine([], None)

    @property
    def now_s(self) -> int:
        return self.ground.now_s

    @property
    def last_hash(self) -> str:
        return str(self.blocks[-1]["transactions"][0])

    def wait(self, seconds: int) -> None:
        self.ground.wait(seconds)

    def create(self, code: bytes) -> str:
        return self.ground.create(code)

    def view(self, to: str, data: bytes) -> bytes:
        return self.ground.view(to, data)

    def call(self, sender: Signer, to: str, data: bytes) -> Done:
        done = self.ground.call(sender, to, data)
        self._mine([done], sender)
        return done

    def _mine(self, done: Sequence[Done], sender: Signer | None) -> None:
        number = len(self.blocks)
        block_hash, tx_hash = (f"0x{keccak256(b'%s %d' % (kind, number)).hex()}" for kind in (b"block", b"tx"))
        place = {"blockNumber": hex(number), "blockHash": block_hash, "transactionHash": tx_hash, "removed": False}
        logs: list[dict[str, Any]] = [
            {"address": address.lower(), "topics": topics, "data": "0x" + data.hex(), "logIndex": hex(index), **place}
            for each in done for index, (address, topics, data) in enumerate(each.logs)
        ]  # fmt: skip
        bloom = 0
        for log in logs:
            for word in (log["address"], *log["topics"]):
                bloom |= bloom_mask(str(word))
        self.blocks.append(
            {
                "number": hex(number), "hash": block_hash, "parentHash": self.blocks[-1]["hash"] if number else "0x0",
                "timestamp": hex(self.now_s), "logsBloom": "0x" + bloom.to_bytes(256).hex(),
                "transactions": [tx_hash] if done else [],
            }
        )  # fmt: skip
        self.logs.append(logs)
        self.by_hash[block_hash] = number
        if sender is not None:
            self.receipts[tx_hash] = place | {
                "from": sender.address, "status": "0x1", "gasUsed": hex(done[0].gas),
                "effectiveGasPrice": hex(GAS_PRICE_WEI), "logs": logs,
            }  # fmt: skip

    # The node.

    def answer(self, method: str, params: list[Any]) -> Any:
        """Answer one request."""
        if method == "eth_getBlockByNumber":
            number = self.shown if params[0] == "latest" else int(params[0], 16)
            return self.blocks[number] if number <= self.shown else None
        if method == "eth_getTransactionReceipt":
            return self.receipts.get(params[0])
        if method == "eth_getLogs":
            return self._logs(params[0])
        assert method == "eth_call", method
        return "0x" + self.view(params[0]["to"], bytes.fromhex(params[0]["data"][2:])).hex()

    def _logs(self, query: dict[str, Any]) -> list[dict[str, Any]]:
        if "blockHash" in query:
            numbers = range(self.by_hash[query["blockHash"]], self.by_hash[query["blockHash"]] + 1)
        else:
            numbers = range(int(query["fromBlock"], 16), min(int(query["toBlock"], 16), self.shown) + 1)
        wanted, topics = query["address"], query.get("topics", [])
        addresses = {each.lower() for each in ([wanted] if isinstance(wanted, str) else wanted)}
        return [
            log for number in numbers for log in self.logs[number]
            if log["address"] in addresses
            and all(each is None or each == found for each, found in zip(topics, log["topics"], strict=False))
        ]  # fmt: skip

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[JsonRpc]:
        """Open a client of this node in the same process."""

        async def handle(request: httpx.Request) -> httpx.Response:
            assert isinstance(request.stream, httpx.AsyncByteStream)
            body = json.loads(b"".join([chunk async for chunk in request.stream]))
            items = body if isinstance(body, list) else [body]
            answers = [
                {"jsonrpc": "2.0", "id": each["id"], "result": self.answer(each["method"], each["params"])}
                for each in items
            ]
            return httpx.Response(200, json=answers if isinstance(body, list) else answers[0])

        async with httpx.AsyncClient(transport=httpx.MockTransport(handle)) as http:
            yield JsonRpc(http, "http://node", RpcOptions(tries=1), SystemIds())


@dataclass
class Row:
    """What the database knows of one session."""

    session_id: str
    payer: str
    payee: str
    hold: int
    opened_in: str
    block: int
    seconds: int | None = None
    captured_in: str | None = None
    captured_block: int | None = None


@dataclass
class History:
    """Runs sessions on the contract and remembers what the service would have stored."""

    world: EscrowWorld
    ground: RecordedGround
    chosen: random.Random
    rows: list[Row] = field(default_factory=list)
    ended: list[tuple[Row, EscrowHold, int]] = field(default_factory=list)
    abandoned: list[tuple[EscrowHold, int]] = field(default_factory=list)

    def run(self, sessions: int) -> None:
        """Run the sessions, spread over the days."""
        for payer in range(40):
            self.world.fund(f"payer {payer}", 10**15)
        for number in range(sessions):
            self.ground.wait(DAYS * 86_400 // sessions)
            self._session(number)
            if len(self.ended) >= BATCH:
                self._capture()
            if self.abandoned and self.abandoned[0][1] <= self.ground.now_s:
                self.world.call("reclaim", self.abandoned.pop(0)[0], sender="stranger")
        self.ground.wait(RECLAIMED_AFTER_S)
        self._capture()
        for hold, _ in self.abandoned:
            self.world.call("reclaim", hold, sender="stranger")

    def _session(self, number: int) -> None:
        payer, payee = f"payer {number % 40}", f"payee {number % 20}"
        session_id = str(SystemIds().uuid())
        terms = self.world.terms(
            session_id_hash=bytes.fromhex(session_id_hash(session_id)[2:]), payer=self.world.address(payer),
            payee=self.world.address(payee),
        )  # fmt: skip
        opener = self.world.open_exact if number % 4 == 0 else self.world.open_authorized
        hold = opener(terms, who=payer)
        row = Row(session_id, payer, payee, hold.max_amount, self.ground.last_hash, len(self.ground.blocks) - 1)
        self.rows.append(row)
        kind = number % 100
        if kind < 3:
            self.abandoned.append((hold, self.ground.now_s + RECLAIMED_AFTER_S))
            return
        if kind < 23:
            hold = self.world.extend_authorized(hold, 60 * RATE, who=payer)
        self.ended.append((row, hold, 0 if kind < 28 else self.chosen.randint(1, SECONDS)))
        if kind == 99:
            self.world.send(payer, self.world.token, "transfer(address,uint256)", self.world.escrow, 5)
            self.world.return_stray(payer, 5, keccak256(b"stray %d" % number))

    def _capture(self) -> None:
        # The last session may be younger than its seconds.
        self.ground.wait(SECONDS)
        while self.ended:
            batch, self.ended = self.ended[:BATCH], self.ended[BATCH:]
            refusing = batch[0][0].payee
            self.world.block(refusing)
            self.world.capture(*(self.world.item(hold, seconds) for _, hold, seconds in batch))
            for row, _, seconds in batch:
                row.seconds, row.captured_in = seconds, self.ground.last_hash
                row.captured_block = len(self.ground.blocks) - 1
            self.world.block(refusing, False)
            if self.world.credit(refusing):
                self.world.call("withdraw", self.world.address(refusing))

    # What the service stores.

    async def store(self, first: int, connection: Connection) -> None:
        """Store sessions, holds, openings, settlements and signed transactions of some sessions."""
        relayer = self.world.address("meter").lower()
        for nonce, row in enumerate(self.rows[first : first + STORED_AT_ONCE], start=first):
            hashed, now_ms = session_id_hash(row.session_id), 0
            payer, payee = self.world.address(row.payer).lower(), self.world.address(row.payee).lower()
            charged = (row.seconds or 0) * RATE
            await connection.execute(
                "INSERT INTO session (id, shard, version, state, consumer_workspace_id, operator_workspace_id, lat, "
                "lng, created_at_ms, wait_deadline_ms, doc, updated_at_ms) "
                "VALUES ($1, 0, 1, 'ENDED', $2, $3, 0, 0, 0, 0, $4, 0)",
                row.session_id, CONSUMER, OPERATOR, json.dumps({"phase": {"is": "ended", "charged": charged}}),
            )  # fmt: skip
            await connection.execute(
                "INSERT INTO hold (session_id, session_id_hash, payer, amount, state, updated_at_ms) "
                "VALUES ($1, $2, $3, $4, 'RELEASED', 0)",
                row.session_id, hashed, payer, charged,
            )  # fmt: skip
            await connection.execute(
                "INSERT INTO hold_opening (session_id, session_id_hash, payer, payee, max_amount, rate, fee_bps, "
                "consent, state, tx_hash, block_number, composed_at_ms, updated_at_ms) "
                "VALUES ($1, $2, $3, $4, $5, $6, 1500, '{}', 'CONFIRMED', $7, $8, 0, 0)",
                row.session_id, hashed, payer, payee, row.hold, RATE, row.opened_in, row.block,
            )  # fmt: skip
            await self._attempt(connection, "opening_attempt", row.session_id, row.opened_in, relayer, 2 * nonce)
            if row.captured_in is None:
                continue
            fee = charged * 1_500 // 10_000
            payload = {
                "sessionId": row.session_id, "from": payer, "to": payee, "toAmount": str(charged - fee),
                "feeAmount": str(fee), "rate": str(RATE), "seconds": row.seconds, "consumer": CONSUMER,
                "operator": OPERATOR, "feeBps": 1_500,
            }  # fmt: skip
            await connection.execute(
                "INSERT INTO settlement (session_id, session_id_hash, payload, state, tx_hash, block_number, lane, "
                "composed_at_ms, updated_at_ms) VALUES ($1, $2, $3, 'CONFIRMED', $4, $5, 'PAYABLE', $6, $6)",
                row.session_id, hashed, json.dumps(payload), row.captured_in, row.captured_block, now_ms,
            )  # fmt: skip
            await self._attempt(
                connection, "settlement_attempt", row.session_id, row.captured_in, relayer, 2 * nonce + 1
            )  # fmt: skip

    async def _attempt(
        self, connection: Connection, table: str, session_id: str, tx_hash: str, relayer: str, nonce: int
    ) -> None:
        await connection.execute(
            f"INSERT INTO {table} (tx_hash, session_id, relayer, nonce, raw, max_fee_wei, tip_wei, signed_at_ms) "
            "VALUES ($1, $2, $3, $4, '', 1, 1, 0)",
            tx_hash, session_id, relayer, nonce,
        )  # fmt: skip


@asynccontextmanager
async def open_own_database(directory: Path) -> AsyncIterator[Database]:
    """Run a Postgres of the program's own, with today's schema."""
    options = EmbeddedPostgresOptions(directory=directory / "postgres", log_path=directory / "postgres.log")
    async with trio.open_nursery() as nursery:
        dsn = await nursery.start(run_embedded_postgres, options)
        async with open_database(DatabaseOptions(pool=PoolOptions(dsn=dsn))) as database:
            await migrate(database)
            yield database
        nursery.cancel_scope.cancel()


async def run(sessions: int, seed: int) -> int:
    """Run the history, read it and compare it; returns the number of differences."""
    with TemporaryDirectory() as name:
        directory = Path(name)
        started = time.perf_counter()
        ground = RecordedGround(DirectGround(directory))
        history = History(dataclasses.replace(escrow_world(ground)), ground, random.Random(seed))
        history.run(sessions)
        events = sum(map(len, ground.logs))
        print(f"history: {sessions} sessions, {len(ground.blocks)} blocks, {events} logs: {_since(started)}")
        async with open_own_database(directory) as database, ground.serving() as rpc:
            for first in range(0, sessions, STORED_AT_ONCE):
                await database.transact(partial(history.store, first))
            found = await _read_and_compare(history, database, rpc)
        ground.ground.close()
        return found


async def _read_and_compare(history: History, database: Database, rpc: JsonRpc) -> int:
    world, ground, clock = history.world, history.ground, SystemClock()
    token, contract = world.token.lower(), world.escrow.lower()
    identity = ChainIdentity(
        chain_id=CHAIN_ID, genesis_hash=ground.blocks[0]["hash"], usdc_address=token, settlement_address=contract
    )
    reader = RpcReader(rpc, token=token, settlement=contract, has_limits=False)
    watcher = Watcher(
        rpc, reader, PostgresLedger(database), identity, WatcherOptions(is_escrow=True),
        relayer=world.address("meter"), clock=clock, ids=SystemIds(),
    )  # fmt: skip
    await watcher.watch_once()  # the cursor is at the first block: the others are read one after the other
    started, ground.shown = time.perf_counter(), len(ground.blocks) - 1
    while await watcher.watch_once():
        pass
    print(f"watcher: {_since(started)}")
    started = time.perf_counter()
    source = ChainSource(rpc, token=token, contract=contract, is_escrow=True)
    books = PostgresBooks(database)
    check, differences = await Reconciler(source, books, start_block=0, clock=clock).compare()
    print(f"reconciliation: {check.entries} events, {check.differences} differences: {_since(started)}")
    for difference in differences[:20]:
        print(f"  {difference}")
    sums = await books.balances(check.through_block)
    print(f"escrow {sums['escrow']}, of the contract {ask(ground, world.token, 'balanceOf(address)', world.escrow)}")
    return check.differences


def _since(started: float) -> str:
    return f"{time.perf_counter() - started:.1f} s"


def main() -> None:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser(prog="python -m bench.books", description=__doc__.partition("\n")[0])
    parser.add_argument("--sessions", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    raise SystemExit(1 if trio.run(run, args.sessions, args.seed) else 0)


if __name__ == "__main__":
    main()
