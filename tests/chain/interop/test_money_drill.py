"""Many random sessions in escrow through everything that may go wrong at once; afterwards every micro-USDC is found.

Rates, seconds and ways of consent are random; a fifth is extended. Meanwhile the server's relayer and watcher are
killed by SIGKILL, three endpoints lose and falsify answers, and one after the other is away, lags, or lies about
receipts; blocks are reorganised, fees rise tenfold, parties and the fee receiver are blacklisted, the token is paused,
and a mandate is revoked. A few sessions are abandoned: their operators claim, or their payers reclaim, with
the server gone. SIGHTLINE_DRILL_SESSIONS and SIGHTLINE_DRILL_SEED choose how many, and which.
"""

import itertools
import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
import trio

from sightline.chain.contracts.abi import SETTLED_TOPIC, call_data
from sightline.chain.contracts.escrow import (
    CREDITED_TOPIC,
    EVIDENCE_TOPIC,
    EXTENDED_TOPIC,
    OPENED_TOPIC,
    RECLAIMED_TOPIC,
    escrow_call,
)
from sightline.chain.contracts.messages import INTERIM_DELAY_S, RECLAIM_DELAY_S
from sightline.chain.relayer.openings import mandate_of
from sightline.chain.rpc.client import RpcResponseError
from sightline.chain.service import ChainService
from sightline.domain.errors import RefusedError, SightlineError
from sightline.domain.escrow import ConsentKind, SignedMandate
from sightline.domain.session.model import Session
from sightline.http.schemas.escrow import statement_json
from sightline.ports.chain import ChainConfig
from sightline.ports.escrow import SignedStatement
from sightline.ports.ledger import SettlementState
from sightline.storage.database.bridge import Database
from sightline.storage.postgres.money.reconciliation import PostgresBooks
from sightline.system.keccak import session_id_hash
from sightline_client import AsyncChain
from sightline_client.models import Statement
from sightline_client.wallet import LocalWallet
from tests.chain.endpoint import (
    Endpoint,
    Fault,
    Forward,
    Request,
    Response,
    answering,
    behind,
    failed_receipt,
    honest,
    of_method,
    open_endpoint,
)
from tests.chain.escrow.stage import Kind, Stage, UnpayableError
from tests.chain.interop.anvil import CHAIN_ID, FEE_RECEIVER, Anvil, open_anvil
from tests.chain.interop.conftest import a_world_on, mining
from tests.chain.world import Wallet, until

SESSIONS: Final = int(os.environ.get("SIGHTLINE_DRILL_SESSIONS", "40"))
SEED: Final = int(os.environ.get("SIGHTLINE_DRILL_SEED") or random.randrange(2**32))
DEPTH: Final = 4
"""Above the deepest reorganisation: what is CONFIRMED stays."""
LONGEST_S: Final = 1_800
AT_ONCE: Final = 16
FUNDS: Final = 10**12
AWAY_S: Final = 60 if SESSIONS >= 1_000 else 4
"""How long an endpoint is away, lags or lies."""
LOG_SHOWN: Final = 20_000
"""Characters of the server's log that a failed run prints."""
OVER: Final = frozenset({SettlementState.CONFIRMED, SettlementState.WRITTEN_OFF})

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900 + 4 * SESSIONS)]


@pytest.fixture
async def anvil() -> AsyncIterator[Anvil]:
    async with open_anvil(is_escrow=True) as anvil:
        yield anvil


@pytest.fixture
async def stage(anvil: Anvil, database: Database) -> AsyncIterator[Stage]:
    async with a_world_on(anvil) as world:
        stage = Stage.on(world, database, bytes.fromhex(anvil.meter_key[2:]))
        async with mining(anvil):
            await world.ready_parties(FUNDS)
            await world.give_coin(world.payee)
        await anvil.mine(5)
        yield stage


@dataclass
class Server:
    """Relayer and watcher in a process that is killed by SIGKILL."""

    arguments: str
    log_path: Path
    process: trio.Process | None = None
    kills: int = 0

    async def start(self) -> None:
        command = [sys.executable, "-m", "tests.chain.interop.drill_server", self.arguments]
        with self.log_path.open("ab") as log_file:
            self.process = await trio.lowlevel.open_process(command, stdout=subprocess.PIPE, stderr=log_file)
        assert self.process.stdout is not None
        with trio.fail_after(120):
            said = b""
            while b"ready\n" not in said:
                chunk = await self.process.stdout.receive_some()
                if not chunk:  # the endpoint lost an answer while it started
                    await self.process.wait()
                    return await self.start()
                said += chunk
        return None

    async def kill(self) -> None:
        if self.process is None:
            return
        process, self.process = self.process, None
        process.send_signal(signal.SIGKILL)
        with trio.CancelScope(shield=True):
            await process.wait()
            if process.stdout is not None:
                await process.stdout.aclose()
        self.kills += 1


@dataclass
class Drill:
    """The sessions of one run, and what became of them."""

    stage: Stage
    anvil: Anvil
    service: ChainService
    dice: random.Random
    payers: list[Wallet]
    payees: list[Wallet]
    endpoints: list[Endpoint]
    charges: dict[str, int] = field(default_factory=dict)
    claims: dict[str, SignedStatement] = field(default_factory=dict)
    reclaims: dict[str, SignedStatement] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    token_runs: trio.Event = field(default_factory=trio.Event)
    """Set while the token is not paused: nobody asks for a session in a pause, but those under way meet it."""

    async def film(self, payer: Wallet, kind: Kind) -> None:
        """Run one session from its request to its end, as the actors would."""
        dice, stage = self.dice, self.stage
        await self.token_runs.wait()
        rate, duration_s = dice.randint(1, 9_999), dice.randint(120, 1_200)
        session = await self._assigned(payer, kind, rate, duration_s)
        if session is None:
            self.counts["not taken"] += 1
            return
        self.counts[f"by {kind}"] += 1
        if not await self._is_open(session):
            self.counts["not opened"] += 1
            await stage.closed(session)
            return
        session = await stage.live(session)
        if dice.random() < 0.2:
            session = await self._extended(session, payer, kind)
        fate = dice.random()
        if fate < 0.05:
            statement = await self._statement(session, dice.randint(1, session.terms.max_duration_s))
            (self.claims if fate < 0.02 else self.reclaims)[session.id] = statement
            return
        longest_s = session.terms.max_duration_s if dice.random() < 0.3 else 60
        seconds = 0 if fate < 0.1 else dice.randint(1, longest_s)
        self.charges[session.id] = await stage.ended(session, seconds)

    async def _assigned(self, payer: Wallet, kind: Kind, rate: int, duration_s: int) -> Session | None:
        while True:
            try:
                return await self.stage.assigned(
                    self.service, payer=payer, kind=kind, payee=self.dice.choice(self.payees), duration_s=duration_s,
                    rate=rate,
                )  # fmt: skip
            except UnpayableError:
                return None
            except SightlineError:  # the endpoint lost an answer: a client asks again
                self.counts["asked again"] += 1

    async def _is_open(self, session: Session) -> bool:
        assert self.service.escrow is not None
        while True:
            try:
                await self.service.escrow.open_hold(session)
            except RefusedError:
                return False
            except SightlineError:
                self.counts["asked again"] += 1
            else:
                return True

    async def _extended(self, session: Session, payer: Wallet, kind: Kind) -> Session:
        """Ask for more time, and go on with it, or without it if the contract refuses."""
        assert self.service.escrow is not None
        asking: Session | None = None
        while True:
            try:
                if asking is None:
                    seconds = self.dice.randint(10, 600)
                    asking = await self.stage.extending(self.service, session, seconds, kind, payer)
                extended = await self.stage.extended(asking, await self.service.escrow.extend_hold(asking))
            except (RefusedError, UnpayableError):
                self.counts["extensions refused"] += 1
                await self.stage.store(session)
                return session
            except SightlineError:
                self.counts["asked again"] += 1
            else:
                self.counts["extended"] += 1
                return extended

    async def _statement(self, session: Session, seconds: int) -> SignedStatement:
        """The operator's last statement of a session whose service dies."""
        assert self.service.escrow is not None

        async def is_final() -> bool:
            opening = await self.stage.openings.opening(session.id)
            return opening is not None and opening.state is SettlementState.CONFIRMED

        try:
            await until("the abandoned hold is final", is_final, 120)
        except AssertionError as error:
            left = await self.stage.openings.opening(session.id)
            raise AssertionError(f"{error}, seed {SEED}: {left}") from None
        signed = await self.service.escrow.statement(
            session.id, clean_seconds=seconds, head_hash="cd" * 32, is_final=False
        )
        assert signed is not None
        return signed

    async def issuer_sets(
        self, call: str, question: str, about: list[object], value: bool, *, for_good: bool = False
    ) -> None:
        """Send a call of the token's owner until the chain says so: a reorganisation may remove it.

        Args:
            for_good: Wait until no reorganisation can remove it.
        """
        world = self.stage.world
        asked = {"to": world.token, "data": "0x" + call_data(question, about).hex()}
        data = call_data(call, [*about, value])
        while True:
            try:
                if int(await world.rpc.call("eth_call", asked, "latest"), 16) == value:
                    if not for_good:
                        return
                    await self.anvil.mine(DEPTH)
                    head = int(await world.rpc.call("eth_blockNumber"), 16)
                    if int(await world.rpc.call("eth_call", asked, hex(head - DEPTH)), 16) == value:
                        return
                    continue
                await world.send(self.anvil.treasury_key, world.token, data, tip_wei=10**11)
                await self.anvil.mine()
            except RpcResponseError:  # asked, or sent, while the head was replaced
                self.counts["issuer tried again"] += 1

    async def confirmed_opens_of(self, payer: Wallet) -> None:
        """Wait until no open of a payer can be removed by a reorganisation any more."""
        pending = """
        SELECT count(*) FROM hold_opening WHERE payer = $1 AND state NOT IN ('CONFIRMED', 'WRITTEN_OFF', 'FAILED')
        """

        async def none_pending() -> bool:
            found = await self.stage.database.read(
                lambda connection: connection.fetchval(pending, payer.address.lower())
            )
            return not found

        await until("the payer's opens are final", none_pending, 120)


async def faults(drill: Drill, server: Server) -> None:
    """Everything that goes wrong while sessions run, for ever."""
    dice, anvil = drill.dice, drill.anvil

    async def unlucky(request: Request, forward: Forward) -> Response | None:
        roll = dice.random()
        if roll < 0.03 and request["method"] == "eth_getLogs":
            return await answering([])(request, forward)
        if roll < 0.03 and request["method"] == "eth_getTransactionReceipt":
            return await answering(None)(request, forward)
        return await forward(request)

    async def storm() -> None:
        while True:
            await trio.sleep(dice.uniform(0.05, 0.3))
            await anvil.rpc.call("evm_increaseTime", 8)  # sessions of minutes pass in seconds
            await anvil.mine(dice.randint(1, 2))
            if dice.random() < 0.3:
                await anvil.reorganise(dice.randint(1, 3))
                drill.counts["reorganisations"] += 1

    async def kill() -> None:
        while True:
            await trio.sleep(dice.uniform(6, 12))
            await server.kill()
            await server.start()

    async def spike() -> None:
        while True:
            await trio.sleep(dice.uniform(4, 8))
            base = int((await anvil.rpc.call("eth_getBlockByNumber", "latest", False))["baseFeePerGas"], 16)
            await anvil.rpc.call("anvil_setNextBlockBaseFeePerGas", hex(10 * max(base, 10**9)))
            drill.counts["fee spikes"] += 1

    async def issuer() -> None:
        """Blacklist an operator or the fee receiver, or pause the token, for a while.

        A pause refuses every open under way, so that pauses as frequent as the rest would leave few sessions to follow.
        """
        while True:
            await trio.sleep(dice.uniform(2, 5))
            if dice.random() < 0.85:
                blocked = dice.choice([FEE_RECEIVER, *(payee.address for payee in drill.payees)])
                await drill.issuer_sets("setBlacklisted(address,bool)", "isBlacklisted(address)", [blocked], True)
                await trio.sleep(1)
                await drill.issuer_sets(
                    "setBlacklisted(address,bool)", "isBlacklisted(address)", [blocked], False, for_good=True
                )
                drill.counts["fee receivers blocked" if blocked == FEE_RECEIVER else "payees blocked"] += 1
            else:
                drill.token_runs = trio.Event()
                await drill.issuer_sets("setPaused(bool)", "paused()", [], True)
                await drill.issuer_sets("setPaused(bool)", "paused()", [], False, for_good=True)
                drill.token_runs.set()
                drill.counts["pauses"] += 1

    for endpoint in drill.endpoints:
        endpoint.fault = unlucky
        endpoint.weather = lambda: dice.choice(["fine"] * 24 + ["lose_request", "lose_reply"])
    try:
        async with trio.open_nursery() as nursery:
            for fault in (storm, kill, issuer, spike):
                nursery.start_soon(fault)
            nursery.start_soon(_wrong_endpoints, drill, unlucky)
    finally:
        for endpoint in drill.endpoints:
            endpoint.fault, endpoint.weather, endpoint.is_down = honest, lambda: "fine", False


async def _wrong_endpoints(drill: Drill, usual: Fault) -> None:
    """One endpoint after the other is away, lags, or lies about receipts."""
    for wrong in itertools.cycle(drill.dice.sample(["away", "late", "lying"], 3)):
        await trio.sleep(drill.dice.uniform(1, 3))
        endpoint = drill.dice.choice(drill.endpoints)
        endpoint.is_down = wrong == "away"
        if wrong == "late":
            endpoint.fault = behind(int(await drill.anvil.rpc.call("eth_blockNumber"), 16))
        elif wrong == "lying":
            endpoint.fault = of_method("eth_getTransactionReceipt", failed_receipt)
        await trio.sleep(AWAY_S)
        endpoint.is_down, endpoint.fault = False, usual
        drill.counts[f"endpoints {wrong}"] += 1


@asynccontextmanager
async def under_faults(drill: Drill, server: Server) -> AsyncIterator[None]:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(faults, drill, server)
        yield
        nursery.cancel_scope.cancel()


async def test_every_micro_usdc_is_found_after_sessions_through_all_faults(
    stage: Stage, anvil: Anvil, database_dsn: str, tmp_path: Path
) -> None:
    world, dice = stage.world, random.Random(SEED)
    payers, payees = [world.payer, *(Wallet() for _ in range(5))], [world.payee, *(Wallet() for _ in range(7))]
    async with mining(anvil):
        for wallet in (*payers[1:], *payees[1:]):
            await stage.ledger.track(wallet.workspace_id, wallet.address, now_ms=0)
            await world.give_coin(wallet)
        for wallet in payers[1:]:
            await world.fund(wallet, FUNDS)
            await world.approve(wallet)
    await anvil.mine(10)  # no reorganisation reaches funds and allowances
    before = {wallet.address: await world.balance(wallet) for wallet in (*payers, *payees)}
    async with AsyncExitStack() as stack:
        endpoints = [await stack.enter_async_context(open_endpoint(anvil.url)) for _ in range(3)]
        urls = ",".join(endpoint.url for endpoint in endpoints)
        arguments = json.dumps({"dsn": database_dsn, "options": _options(stage, anvil, urls)})
        server = Server(arguments, tmp_path / "server.log")
        service = await stack.enter_async_context(stage.opened(depth=DEPTH, rpc_url=urls))
        drill = Drill(stage, anvil, service, dice, payers, payees, endpoints)
        try:
            async with mining(anvil):
                await server.start()
            await _storm(drill, server)
            await _calm(drill, server)
            await _help_themselves(drill, server)
            await _account(drill, before)
        except BaseException:
            sys.stderr.write(server.log_path.read_text(errors="replace")[-LOG_SHOWN:])
            raise
        finally:
            await server.kill()
    counts = ", ".join(f"{name} {count}" for name, count in sorted(drill.counts.items()))
    sys.stdout.write(f"drill, seed {SEED}: {SESSIONS} sessions, {server.kills} kills, {counts}\n")


def _options(stage: Stage, anvil: Anvil, urls: str) -> dict[str, Any]:
    world = stage.world
    return {
        "rpc_url": urls, "usdc_address": world.token,
        "settlement_address": world.settlement, "relayer_key": world.relayer_key.hex(), "depth": DEPTH, "poll_ms": 30,
        "rpc_timeout_ms": 3_000, "is_escrow": True, "meter_key": anvil.meter_key[2:], "replace_ms": 5_000,
        "capture_window_ms": 300,
    }  # fmt: skip


async def _storm(drill: Drill, server: Server) -> None:
    """Run the sessions. Two thirds through, the last payer is blacklisted and the one before revokes its mandates."""
    dice, stage = drill.dice, drill.stage
    ordinary, (revoking, blocked) = drill.payers[:-2], drill.payers[-2:]
    slots = trio.CapacityLimiter(AT_ONCE)

    async def run(payer: Wallet, kind: Kind) -> None:
        async with slots:
            await drill.film(payer, kind)

    kinds: list[Kind] = dice.choices(
        [ConsentKind.AUTHORIZATION, ConsentKind.CONSENT, ConsentKind.MANDATE, "exact"], weights=[30, 20, 25, 25],
        k=SESSIONS,
    )  # fmt: skip
    first = SESSIONS * 2 // 3
    drill.token_runs.set()
    async with under_faults(drill, server):
        async with trio.open_nursery() as nursery:
            for kind in kinds[:first]:
                nursery.start_soon(run, dice.choice(drill.payers), kind)
        await drill.confirmed_opens_of(blocked)
        await drill.issuer_sets("setBlacklisted(address,bool)", "isBlacklisted(address)", [blocked.address], True)
        await drill.confirmed_opens_of(revoking)
        for mandate in await _mandates_of(stage, revoking):
            await stage.world.send(
                revoking.key, stage.world.settlement, escrow_call("revokeMandate", mandate_of(mandate))
            )  # fmt: skip
            drill.counts["mandates revoked"] += 1
        async with trio.open_nursery() as nursery:
            for kind in kinds[first:]:
                payer = blocked if dice.random() < 0.1 else dice.choice(ordinary)
                nursery.start_soon(run, payer, kind)


async def _mandates_of(stage: Stage, payer: Wallet) -> list[SignedMandate]:
    ids_of = "SELECT session_id::text FROM hold_opening WHERE payer = $1"
    rows = await stage.database.read(lambda connection: connection.fetch(ids_of, payer.address.lower()))
    openings = await stage.openings.openings([row["session_id"] for row in rows])
    return [each.consent.mandate for each in openings.values() if each.consent.mandate is not None]


async def _calm(drill: Drill, server: Server) -> None:
    """Stop the faults, and wait until everything that was not abandoned is settled."""
    stage = drill.stage
    if server.process is None:
        await server.start()
    abandoned = drill.claims.keys() | drill.reclaims.keys()
    waiting = [session_id for session_id in stage.world.sessions if session_id not in abandoned]
    async with mining(drill.anvil):
        await drill.issuer_sets("setPaused(bool)", "paused()", [], False)
        for address in (FEE_RECEIVER, *(payee.address for payee in drill.payees)):
            await drill.issuer_sets("setBlacklisted(address,bool)", "isBlacklisted(address)", [address], False)
        await drill.anvil.rpc.call("evm_increaseTime", LONGEST_S)

        async def all_over() -> bool:
            open_rows = [
                session_id for session_id in waiting if (await stage.world.record(session_id)).state not in OVER
            ]
            waiting[:] = open_rows
            return not open_rows

        try:
            await until(f"everything is settled in the quiet, seed {SEED}", all_over, 180 + SESSIONS)
        except AssertionError as error:
            left = [await stage.world.record(session_id) for session_id in waiting[:3]]
            raise AssertionError(f"{error}: {len(waiting)} are not, such as {left}") from None


async def _help_themselves(drill: Drill, server: Server) -> None:
    """The server is gone: operators claim by their last statement, and payers take back what nobody claims."""
    await server.kill()
    anvil, stage, chain = drill.anvil, drill.stage, AsyncChain(drill.anvil.url)
    caller = LocalWallet.from_key(drill.payees[0].key)
    config = ChainConfig(
        environment="TEST", chain_id=CHAIN_ID, chain_name="", rpc_url="", rpc_is_private=False, explorer_url="",
        usdc_address=stage.world.token, settlement_address=stage.world.settlement, is_escrow=True,
    )  # fmt: skip

    def shown(signed: SignedStatement) -> Statement:
        return Statement.model_validate(statement_json(signed, chain=config))

    async with mining(anvil):
        await anvil.rpc.call("evm_increaseTime", LONGEST_S + INTERIM_DELAY_S)
        for signed in drill.claims.values():
            await chain.claim(caller, shown(signed))
        await anvil.rpc.call("evm_increaseTime", RECLAIM_DELAY_S)
        for signed in drill.reclaims.values():
            await chain.reclaim(caller, shown(signed))
    drill.counts["claimed"], drill.counts["reclaimed"] = len(drill.claims), len(drill.reclaims)
    await anvil.mine(DEPTH + 1)
    await server.start()
    await stage.world.until_books_read(60 + SESSIONS)  # the chain has made 50 blocks a second


async def _account(drill: Drill, before: dict[str, int]) -> None:
    """Find every micro-USDC: on the chain alone, then in the journal and the rows of sessions."""
    stage, world = drill.stage, drill.stage.world
    query = {"address": world.settlement, "fromBlock": "0x0", "toBlock": "latest"}
    held, paid, closed = Counter[str](), Counter[str](), Counter[str]()
    charged, owed = Counter[str](), 0
    for log in await world.rpc.call("eth_getLogs", query):
        topic, session = log["topics"][0], log["topics"][1]
        words = [int(log["data"][at : at + 64], 16) for at in range(2, len(log["data"]), 64)]
        if topic in (OPENED_TOPIC, EXTENDED_TOPIC):
            held[session] += words[0]
        elif topic == SETTLED_TOPIC:
            paid[session] += words[0] + words[1]
            charged[session] = words[0] + words[1]
            closed[session] += 1
        elif topic == EVIDENCE_TOPIC:
            paid[session] += words[1]
        elif topic == RECLAIMED_TOPIC:
            paid[session] += words[0]
            closed[session] += 1
        elif topic == CREDITED_TOPIC:
            owed += words[0]
    assert held == paid, f"captured + returned = held for each session, seed {SEED}"
    assert closed == dict.fromkeys(held, 1), f"each hold is closed once, seed {SEED}"
    assert await stage.held() == 0, f"no hold is open after its last deadline, seed {SEED}"
    assert await stage.in_contract() == owed, f"the contract has the credits and nothing else, seed {SEED}"
    expected = {session_id_hash(key): value for key, value in drill.charges.items()}
    for key, signed in drill.claims.items():
        expected[session_id_hash(key)] = signed.clean_seconds * signed.hold.rate
    on_chain = {key: value for key, value in charged.items() if value}
    assert on_chain == {key: value for key, value in expected.items() if value}, f"seed {SEED}"
    drill.counts["opened"], drill.counts["micro-USDC charged"] = len(held), sum(charged.values())
    drill.counts["micro-USDC credited"] = owed
    lost = sum(before.values()) - sum([await world.balance(each) for each in (*drill.payers, *drill.payees)])
    fee_data = call_data("balanceOf(address)", [FEE_RECEIVER])
    fees_paid = int(await world.rpc.call("eth_call", {"to": world.token, "data": "0x" + fee_data.hex()}, "latest"), 16)
    assert lost == fees_paid + owed, f"what the parties lack is the fee and the credits, seed {SEED}"
    check, differences = await drill.service.reconciler(PostgresBooks(stage.database)).compare()
    assert not differences, f"seed {SEED}: {differences}"
    assert check.entries >= len(held)
    drill.counts["journal entries"] = check.entries
