"""Run one session end to end with a consumer, an operator and the platform, each with its own credentials.

Server, device, publisher and player run as separate processes, as in production. This process uses only the public
HTTP API and the public JSON-RPC endpoint.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, TypeVar, final

import trio
from rich.console import Console

from sightline.cli.checks import CheckFailedError, Checks
from sightline_client import AsyncChain, AsyncSightline, Frame, FrameNotAvailableError
from sightline_client.models import ChainConfig, SessionState, SettlementState
from sightline_client.receipt import clean_seconds
from sightline_client.wallet import LocalWallet

T = TypeVar("T")

PLACE: Final = (52.520008, 13.404954)
"""Latitude and longitude of Berlin, Alexanderplatz."""

FUNDS: Final = 50_000_000
COVERAGE_M: Final = 2_000
DURATION_S: Final = 120
PLAY_S: Final = 5
PATIENCE_S: Final = 30.0
POLL_S: Final = 0.1
BASIS_POINTS: Final = 10_000

CONSUMER_SCOPES: Final = ["sessions:read", "sessions:create", "pricing:read", "wallet:read"]
OPERATOR_SCOPES: Final = ["sessions:operate", "sessions:read", "wallet:read"]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DemoTenant:
    """A workspace of the demo with its wallet and API key."""

    wallet: LocalWallet
    workspace_id: str
    key: str = field(repr=False)


@final
class Demo:
    """One run of the demo."""

    def __init__(self, console: Console, data_dir: Path, frame_path: Path, *, keep: bool) -> None:
        self._console = console
        self._data_dir = data_dir
        self._frame_path = frame_path
        self._keep = keep
        self._checks = Checks(console)
        self._url = ""
        self._chain = AsyncChain("")
        self._config: ChainConfig

    async def run(self) -> None:
        """Run every step of the demo.

        Raises:
            CheckFailedError, SightlineError: A step failed.
        """
        started = trio.current_time()
        async with self._server() as server:
            self._console.print("[bold]1[/] wallets, workspaces, keys")
            await self._read_config()
            consumer = await self._join("CONSUMER", CONSUMER_SCOPES)
            operator = await self._join("SUPPLIER", OPERATOR_SCOPES)
            async with self._device(operator), AsyncSightline(self._url, consumer.key) as api:
                session_id = await self._request(api, operator)
                await self._watch(api, session_id)
                await self._end_and_settle(api, session_id, consumer, operator)
            self._checks.note("whole run", f"{trio.current_time() - started:.1f} s")
            self._console.print(self._checks.table())
            if self._keep:
                self._say_how_to_go_on(consumer, operator)
                await server.wait()

    # Processes.

    @asynccontextmanager
    async def _server(self) -> AsyncIterator[trio.Process]:
        log_path = self._data_dir / "server.log"
        self._console.print(f"[bold]0[/] server: data in {self._data_dir}, log in {log_path}", highlight=False)
        command = [sys.executable, "-m", "sightline.cli", "serve", "--port", "0", "--internal-port", "0"]
        with log_path.open("ab") as log_file:
            server = await trio.lowlevel.open_process(
                [*command, "--data-dir", str(self._data_dir / "data")],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log_file,
            )
            try:
                self._url = await self._await_ready(server, log_path)
                yield server
            finally:
                with trio.CancelScope(shield=True):
                    server.terminate()
                    await server.wait()

    async def _await_ready(self, server: trio.Process, log_path: Path) -> str:
        assert server.stdout is not None
        said = b""
        with trio.move_on_after(PATIENCE_S):
            while not said.endswith(b"\n"):
                chunk = await server.stdout.receive_some()
                if not chunk:
                    break
                said += chunk
        word, _, url = said.decode().strip().partition(" ")
        if word != "ready":
            raise CheckFailedError(f"the server did not become ready; see {log_path}")
        self._checks.note("server ready", url)
        return url

    @asynccontextmanager
    async def _device(self, operator: DemoTenant) -> AsyncIterator[None]:
        log_path = self._data_dir / "device.log"
        env = {**os.environ, "SIGHTLINE_API_KEY": operator.key}
        command = [sys.executable, "-m", "sightline.cli", "device", "--api", self._url]
        with log_path.open("ab") as log_file:
            device = await trio.lowlevel.open_process(
                [*command, "--lat", str(PLACE[0]), "--lng", str(PLACE[1])],
                stdin=subprocess.DEVNULL,
                stdout=log_file,
                stderr=log_file,
                env=env,
            )
            try:
                yield
            finally:
                with trio.CancelScope(shield=True):
                    device.terminate()
                    await device.wait()

    async def _program(self, *args: str) -> str:
        """Run a Sightline program until it exits. Returns its output."""
        command = [sys.executable, *args]
        done = await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False)
        if done.returncode != 0:
            shown = " ".join(word for word in args if "/whip/" not in word)
            raise CheckFailedError(f"{shown}: exit code {done.returncode}: {done.stderr.decode()[-500:]}")
        return done.stdout.decode()

    # Steps.

    async def _read_config(self) -> None:
        async with AsyncSightline(self._url) as api:
            self._config = await api.config()
        self._chain = AsyncChain(self._config.rpc_url)
        self._checks.equal("chain of /config", self._config.environment, "TEST")

    async def _join(self, role: str, scopes: list[str]) -> DemoTenant:
        wallet = LocalWallet.create()
        data = str(self._data_dir / "data")
        await self._program("-m", "sightline.cli", "faucet", wallet.address, str(FUNDS), "--data-dir", data)
        token, spender = self._config.usdc_address, self._config.settlement_address
        self._checks.equal(f"{role} funded", await self._chain.balance_of(token, wallet.address), FUNDS)
        await self._chain.approve(wallet, token=token, spender=spender, amount=FUNDS)
        allowed = await self._chain.allowance(token, wallet.address, spender)
        self._checks.equal(f"{role} approved the settlement contract", allowed, FUNDS)
        async with AsyncSightline(self._url) as api:
            workspace = await api.workspaces.create(
                wallet, slug=f"demo-{role.lower()}", name=f"Demo {role}", roles=[role]
            )
            signed_in = await api.auth.sign_in(wallet, workspace_id=workspace.id)
            self._checks.equal(f"{role} signed in", signed_in.wallet_address, wallet.address)
            minted = await api.keys.mint(workspace.id, label="demo", scopes=scopes)
        return DemoTenant(wallet=wallet, workspace_id=workspace.id, key=minted.plaintext)

    async def _request(self, api: AsyncSightline, operator: DemoTenant) -> str:
        self._console.print("[bold]2[/] coverage, quote, session, dispatch")
        async with AsyncSightline(self._url, operator.key) as operator_api:
            online = await operator_api.workspaces.update(
                operator.workspace_id,
                availability_state="ONLINE",
                coverage_lat=PLACE[0],
                coverage_lng=PLACE[1],
                coverage_radius_meters=COVERAGE_M,
                device_kind="PHONE",
            )
            # A quote counts only operators whose device was seen within a minute.
            await operator_api.workspaces.post_location(operator.workspace_id, lat=PLACE[0], lng=PLACE[1], sequence=0)
        self._checks.equal("operator", online.availability_state, "ONLINE")
        quote = await api.quote(*PLACE, seconds=DURATION_S)
        self._checks.equal("operators at the place", quote.available_operators, 1)
        session = await api.sessions.create(*PLACE, seconds=DURATION_S, quote_id=quote.quote_id)
        self._checks.equal("rate", session.rate_per_second_micro_usdc, quote.rate_per_second_micro_usdc)
        self._checks.equal("hold", session.hold_micro_usdc, quote.estimated_total_micro_usdc)
        settlement = await api.sessions.settlement(session.id)
        self._checks.equal("settlement before the end", settlement.state, "NOT_READY")
        assigned = await api.sessions.dispatch(session.id)
        self._checks.equal("dispatched to", assigned.operator_workspace_id, operator.workspace_id)
        return session.id

    async def _watch(self, api: AsyncSightline, session_id: str) -> None:
        self._console.print("[bold]3[/] live: the device publishes, the consumer watches")
        session = await self._until(
            "LIVE", partial(api.sessions.get, session_id), lambda seen: seen.state == SessionState.LIVE
        )
        first = trio.current_time()
        frame = await self._first_frame(api, session_id)
        self._frame_path.write_bytes(frame.jpeg)
        waited = trio.current_time() - first
        size = f"{frame.width}x{frame.height}, {len(frame.jpeg)} bytes"
        self._checks.note("first frame", f"{size}, {waited:.1f} s after LIVE")
        self._console.print(f"frame: {self._frame_path.resolve()}", highlight=False, soft_wrap=True)
        url = str(session.whep_url)
        played = json.loads(await self._program("-m", "sightline.video.play", url, "--seconds", str(PLAY_S), "--json"))
        self._checks.true(f"frames played by WHEP in {PLAY_S} s", played["frames"] >= PLAY_S * 10, played["frames"])

    async def _first_frame(self, api: AsyncSightline, session_id: str) -> Frame:
        with trio.move_on_after(PATIENCE_S):
            while True:
                try:
                    if (frame := await api.sessions.frame(session_id)) is not None:
                        return frame
                except FrameNotAvailableError:
                    await trio.sleep(POLL_S)
        raise CheckFailedError(f"no frame within {PATIENCE_S:g} s")

    async def _until(self, what: str, read: Callable[[], Awaitable[T]], holds: Callable[[T], bool]) -> T:
        seen: T | None = None
        with trio.move_on_after(PATIENCE_S):
            while True:
                seen = await read()
                if holds(seen):
                    return seen
                await trio.sleep(POLL_S)
        raise CheckFailedError(f"{what}: not within {PATIENCE_S:g} s, last seen {seen!r}")

    async def _end_and_settle(
        self, api: AsyncSightline, session_id: str, consumer: DemoTenant, operator: DemoTenant
    ) -> None:
        self._console.print("[bold]4[/] end, meter, settlement")
        ended = await api.sessions.end(session_id)
        settlement = await api.sessions.settlement(session_id)
        self._checks.true("settlement", settlement.state in {"PENDING", "CONFIRMED"}, settlement.state)
        clean = clean_seconds(await api.sessions.meter(session_id), DURATION_S)
        charged = clean * ended.rate_per_second_micro_usdc
        self._checks.equal("clean seconds, recomputed from the meter's windows", ended.clean_seconds, clean)
        self._checks.equal("charge (micro-USDC)", ended.charged_micro_usdc, charged)
        fee = charged * ended.platform_fee_bps // BASIS_POINTS
        done = await self._until(
            "settlement",
            partial(api.sessions.settlement, session_id),
            lambda seen: seen.state == SettlementState.CONFIRMED,
        )
        assert done.payload is not None
        assert done.tx_hash is not None
        self._checks.equal("fee (micro-USDC)", done.payload.fee_amount, fee)
        self._checks.equal("paid to the operator (micro-USDC)", done.payload.to_amount, charged - fee)
        self._checks.note("settlement", f"CONFIRMED in {done.tx_hash}")
        receipt = await self._chain.receipt(done.tx_hash)
        self._checks.equal("receipt of the transaction", int(receipt["status"], 16), 1)
        token = self._config.usdc_address
        left = await self._chain.balance_of(token, consumer.wallet.address)
        self._checks.equal("consumer's balance on the chain", left, FUNDS - charged)
        earned = await self._chain.balance_of(token, operator.wallet.address)
        self._checks.equal("operator's balance on the chain", earned, FUNDS + charged - fee)
        wallet = await self._until(
            "wallet",
            api.wallet.get,
            lambda seen: (seen.tracked_balance, seen.held_micro_usdc) == (FUNDS - charged, 0),
        )
        self._checks.equal("consumer's wallet, as the watcher saw it", wallet.tracked_balance, left)

    def _say_how_to_go_on(self, consumer: DemoTenant, operator: DemoTenant) -> None:
        say = self._console.out
        say("\nThe server goes on; Ctrl-C stops it.")
        say(f"export SIGHTLINE={self._url}")
        say(f"export CONSUMER_KEY={consumer.key}")
        say(f"export OPERATOR_KEY={operator.key}")
        say('curl -H "Authorization: Bearer $CONSUMER_KEY" $SIGHTLINE/api/v1/me')
        say('curl -H "Authorization: Bearer $CONSUMER_KEY" $SIGHTLINE/api/v1/sessions')
        say('curl -H "Authorization: Bearer $CONSUMER_KEY" $SIGHTLINE/api/v1/wallet/events')
        say(f"SIGHTLINE_API_KEY=$OPERATOR_KEY sightline device --api {self._url} --lat {PLACE[0]} --lng {PLACE[1]}")


def run_demo(*, keep: bool, data_dir: Path | None, frame_path: Path) -> int:
    """Run the demo. Returns the exit code: 0 only if every check passed."""
    console = Console()
    directory = data_dir if data_dir is not None else Path(tempfile.mkdtemp(prefix="sightline-demo-"))
    directory.mkdir(parents=True, exist_ok=True)
    demo = Demo(console, directory, frame_path, keep=keep)
    try:
        trio.run(demo.run)
    except KeyboardInterrupt:
        return 0 if keep else 130
    except Exception as error:  # noqa: BLE001  for any failure the user is told which log to read
        for cause in _leaves(error):
            console.print(f"[bold red]failed[/] {type(cause).__name__}: {cause}", highlight=False, markup=True)
        console.print(
            f"server log: {directory / 'server.log'}; device log: {directory / 'device.log'}", highlight=False
        )
        return 1
    console.print("[bold green]every check held[/]")
    return 0


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in _leaves(inner)]
    return [error]
