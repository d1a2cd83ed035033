"""Run one session end to end with a consumer, an operator and the platform, each with its own credentials.

Server, device, publisher and player run as separate processes, as in production. This process uses only the public
HTTP API and the public JSON-RPC endpoint.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final, final

import trio
from rich.console import Console

from sightline.cli.checks import CheckFailedError, Checks
from sightline.client import Api, ChainClient, JpegFrame, Wallet

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

    wallet: Wallet
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
        self._chain = ChainClient("")
        self._config: dict[str, Any] = {}

    async def run(self) -> None:
        """Run every step of the demo.

        Raises:
            CheckFailedError, ApiError, ChainError: A step failed.
        """
        started = trio.current_time()
        async with self._server() as server:
            self._console.print("[bold]1[/] wallets, workspaces, keys")
            await self._read_config()
            consumer = await self._join("CONSUMER", CONSUMER_SCOPES)
            operator = await self._join("SUPPLIER", OPERATOR_SCOPES)
            async with self._device(operator), Api(self._url, key=consumer.key) as api:
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
        async with Api(self._url) as api:
            self._config = await api.get("/config")
        self._chain = ChainClient(self._config["rpcUrl"])
        self._checks.equal("chain of /config", self._config["environment"], "TEST")

    async def _join(self, role: str, scopes: list[str]) -> DemoTenant:
        wallet = Wallet()
        data = str(self._data_dir / "data")
        await self._program("-m", "sightline.cli", "faucet", wallet.address, str(FUNDS), "--data-dir", data)
        token, spender = self._config["usdcAddress"], self._config["settlementAddress"]
        self._checks.equal(f"{role} funded", await self._chain.balance_of(token, wallet.address), FUNDS)
        await wallet.approve(self._chain, token=token, spender=spender, amount=FUNDS)
        allowed = await self._chain.allowance(token, wallet.address, spender)
        self._checks.equal(f"{role} approved the settlement contract", allowed, FUNDS)
        async with Api(self._url) as api:
            slug = f"demo-{role.lower()}"
            workspace = await wallet.create_workspace(api, slug=slug, name=f"Demo {role}", roles=[role])
            signed_in = await wallet.sign_in(api)
            self._checks.equal(f"{role} signed in", signed_in["walletAddress"], wallet.address)
            workspace_id = workspace["id"]
            await api.post("/auth/workspace/select", workspaceId=workspace_id)
            minted = await api.post(
                f"/workspaces/{workspace_id}/api-keys", label="demo", environment="TEST", scopes=scopes
            )
        return DemoTenant(wallet=wallet, workspace_id=workspace_id, key=minted["plaintext"])

    async def _request(self, api: Api, operator: DemoTenant) -> str:
        self._console.print("[bold]2[/] coverage, quote, session, dispatch")
        async with Api(self._url, key=operator.key) as operator_api:
            online = await operator_api.call(
                "PATCH",
                f"/workspaces/{operator.workspace_id}",
                {
                    "availabilityState": "ONLINE",
                    "coverageLat": PLACE[0],
                    "coverageLng": PLACE[1],
                    "coverageRadiusMeters": COVERAGE_M,
                    "deviceKind": "PHONE",
                },
            )
            # A quote counts only operators whose device was seen within a minute.
            await operator_api.post(
                f"/workspaces/{operator.workspace_id}/location", lat=PLACE[0], lng=PLACE[1], sequence=0
            )
        self._checks.equal("operator", online["availabilityState"], "ONLINE")
        quote = await api.get("/pricing/quote", lat=PLACE[0], lng=PLACE[1], durationSeconds=DURATION_S)
        self._checks.equal("operators at the place", quote["availableOperators"], 1)
        session = await api.post(
            "/sessions", lat=PLACE[0], lng=PLACE[1], maxDurationSeconds=DURATION_S, quoteId=quote["quoteId"]
        )
        self._checks.equal("rate", session["ratePerSecondMicroUsdc"], quote["ratePerSecondMicroUsdc"])
        self._checks.equal("hold", session["holdMicroUsdc"], quote["estimatedTotalMicroUsdc"])
        settlement = await api.get(f"/settlements/{session['id']}")
        self._checks.equal("settlement before the end", settlement["state"], "NOT_READY")
        assigned = await api.post(f"/sessions/{session['id']}/dispatch")
        self._checks.equal("dispatched to", assigned["operatorWorkspaceId"], operator.workspace_id)
        return str(session["id"])

    async def _watch(self, api: Api, session_id: str) -> None:
        self._console.print("[bold]3[/] live: the device publishes, the consumer watches")
        session = await self._until("LIVE", lambda: api.get(f"/sessions/{session_id}"), state="LIVE")
        first = trio.current_time()
        frame = await self._first_frame(api, session_id)
        self._frame_path.write_bytes(frame.jpeg)
        width, height = frame.headers["x-svc-frame-width"], frame.headers["x-svc-frame-height"]
        waited = trio.current_time() - first
        self._checks.note("first frame", f"{width}x{height}, {len(frame.jpeg)} bytes, {waited:.1f} s after LIVE")
        self._console.print(f"frame: {self._frame_path.resolve()}", highlight=False, soft_wrap=True)
        played = json.loads(
            await self._program("-m", "sightline.video.play", session["whepUrl"], "--seconds", str(PLAY_S), "--json")
        )
        self._checks.true(f"frames played by WHEP in {PLAY_S} s", played["frames"] >= PLAY_S * 10, played["frames"])

    async def _first_frame(self, api: Api, session_id: str) -> JpegFrame:
        with trio.move_on_after(PATIENCE_S):
            while True:
                frame = await api.frame(session_id)
                if frame is not None:
                    return frame
                await trio.sleep(POLL_S)
        raise CheckFailedError(f"no frame within {PATIENCE_S:g} s")

    async def _until(self, what: str, read: Any, **expected: str) -> dict[str, Any]:
        seen: dict[str, Any] = {}
        with trio.move_on_after(PATIENCE_S):
            while True:
                seen = await read()
                if all(seen[key] == value for key, value in expected.items()):
                    return seen
                await trio.sleep(POLL_S)
        raise CheckFailedError(f"{what}: expected {expected} within {PATIENCE_S:g} s, came {seen.get('state')}")

    async def _end_and_settle(self, api: Api, session_id: str, consumer: DemoTenant, operator: DemoTenant) -> None:
        self._console.print("[bold]4[/] end, meter, settlement")
        ended = await api.post(f"/sessions/{session_id}/end")
        settlement = await api.get(f"/settlements/{session_id}")
        self._checks.true("settlement", settlement["state"] in {"PENDING", "CONFIRMED"}, settlement["state"])
        meter = await api.get(f"/sessions/{session_id}/meter")
        clean, charged = _recompute(meter)
        self._checks.equal("clean seconds, recomputed from the meter's windows", ended["cleanSeconds"], clean)
        self._checks.equal("charge (micro-USDC)", int(ended["chargedMicroUsdc"]), charged)
        fee = charged * ended["platformFeeBps"] // BASIS_POINTS
        done = await self._until("settlement", lambda: api.get(f"/settlements/{session_id}"), state="CONFIRMED")
        payload = done["payload"]
        self._checks.equal("fee (micro-USDC)", int(payload["feeAmount"]), fee)
        self._checks.equal("paid to the operator (micro-USDC)", int(payload["toAmount"]), charged - fee)
        self._checks.note("settlement", f"CONFIRMED in {done['txHash']}")
        receipt = await self._chain.receipt(done["txHash"])
        self._checks.equal("receipt of the transaction", int(receipt["status"], 16), 1)
        token = self._config["usdcAddress"]
        left = await self._chain.balance_of(token, consumer.wallet.address)
        self._checks.equal("consumer's balance on the chain", left, FUNDS - charged)
        earned = await self._chain.balance_of(token, operator.wallet.address)
        self._checks.equal("operator's balance on the chain", earned, FUNDS + charged - fee)
        held = {"trackedBalance": str(FUNDS - charged), "heldMicroUsdc": "0"}
        wallet = await self._until("wallet", lambda: api.get("/wallet"), **held)
        self._checks.equal("consumer's wallet, as the watcher saw it", int(wallet["trackedBalance"]), left)

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


def _recompute(meter: dict[str, Any]) -> tuple[int, int]:
    """Compute clean seconds and charge from the meter's windows, independently of the server."""
    started, ended = _ms(meter["startedAt"]), _ms(meter["endedAt"])
    dirty, covered_to = 0, started
    for window in sorted(meter["windows"], key=lambda window: str(window["from"])):
        begin, end = max(_ms(window["from"]), covered_to), _ms(window["to"])
        dirty += max(0, end - begin)
        covered_to = max(covered_to, end)
    clean = min(DURATION_S, (ended - started - dirty) // 1000)
    return clean, clean * int(meter["ratePerSecondMicroUsdc"])


def _ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


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
