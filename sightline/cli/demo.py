"""Run one session end to end with a consumer, an operator and the platform, each with its own credentials.

Server, device, publisher and player run as separate processes, as in production. This process uses only the public
HTTP API and the public JSON-RPC endpoint.
"""

import json
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final, TypeVar, final

import trio
from rich.console import Console

from sightline.cli.checks import CheckFailedError, Checks
from sightline.cli.local import (
    COVERAGE_M,
    ESCROW,
    LOCAL_SCOPES,
    LOCAL_SETTINGS,
    PATIENCE_S,
    PLACE,
    LocalServer,
    LocalTenant,
    console_url,
    exports,
    own_command,
)
from sightline.http.links import other_devices_hint
from sightline_client import AsyncChain, AsyncSightline, Frame, FrameNotAvailableError, NotFoundError
from sightline_client.commands.signals import stop_like_ctrl_c
from sightline_client.escrow import Payment, sign_payment
from sightline_client.models import ChainConfig, Quote, Session, SessionState, SettlementState

T = TypeVar("T")

FUNDS: Final = 50_000_000
DURATION_S: Final = 120
PLAY_S: Final = 5
FRAMES_PER_S_MIN: Final = 2
"""A machine that is busy with other work decodes a part of the frames."""
POLL_S: Final = 0.1
BASIS_POINTS: Final = 10_000


@final
class Demo:
    """One session from its request to its settlement. Each step checks what the API and the chain say.

    Args:
        console: Prints each check.
        local: The server that the consumer calls, and its faucet.
        frame_path: File for the newest frame.
        device_server: The server that the operator and its device call; default: the consumer's.
    """

    def __init__(
        self, console: Console, local: LocalServer, frame_path: Path, device_server: LocalServer | None = None
    ) -> None:
        self._console = console
        self._local = local
        self._device_server = device_server or local
        self._frame_path = frame_path
        self._checks = Checks(console)
        self._chain = AsyncChain("")
        self._config: ChainConfig
        self._consumer: LocalTenant
        self._operator: LocalTenant

    async def run(self, *, keep: bool) -> None:
        """Start the server, and run every step.

        Args:
            keep: Leave server and device running afterwards, and print commands to continue with.

        Raises:
            CheckFailedError, SightlineError: A step failed.
        """
        started = trio.current_time()
        directory, log_path = self._local.directory, self._local.log_path
        self._console.print(f"[bold]0[/] server: data in {directory}, log in {log_path}", highlight=False)
        async with self._local.running() as server:
            self._checks.note("server ready", self._local.url)
            async with self.dispatched() as (api, session_id):
                await self.watch(api, session_id)
                await self.end_and_settle(api, session_id)
                self._checks.note("whole run", f"{trio.current_time() - started:.1f} s")
                self._console.print(self._checks.table())
                self._console.print("[bold green]every check held[/]")
                if keep:
                    # The device stays online, so that a view that is asked for in the browser is filmed.
                    self._say_how_to_go_on()
                    await server.wait()
        self._console.print(
            f"See it in a browser: `{own_command()} demo --keep` prints the URL of a console with this session; "
            f"`{own_command()} serve` starts an empty one on http://127.0.0.1:8080/",
            highlight=False,
        )

    # Steps.

    @asynccontextmanager
    async def dispatched(self) -> AsyncIterator[tuple[AsyncSightline, str]]:
        """Sign up a consumer and an operator with its device, and dispatch a session.

        Yields:
            The consumer's client and the id of the session. The device works until the end of the block.
        """
        self._console.print("[bold]1[/] wallets, workspaces, keys")
        await self._read_config()
        self._consumer = await self._join(self._local, "CONSUMER")
        self._operator = await self._join(self._device_server, "SUPPLIER")
        async with (
            self._device_server.device(self._operator),
            AsyncSightline(self._local.url, self._consumer.key) as api,
        ):
            yield api, await self._request(api)

    async def _read_config(self) -> None:
        async with AsyncSightline(self._local.url) as api:
            self._config = await api.config()
        self._chain = AsyncChain(self._config.rpc_url)
        self._checks.equal("chain of /config", self._config.environment, "TEST")

    async def _join(self, server: LocalServer, role: str) -> LocalTenant:
        wallet = await server.funded_wallet(FUNDS)
        token, spender = self._config.usdc_address, self._config.settlement_address
        self._checks.equal(f"{role} funded", await self._chain.balance_of(token, wallet.address), FUNDS)
        allowed = await self._chain.allowance(token, wallet.address, spender)
        self._checks.equal(f"{role} approved the settlement contract", allowed, FUNDS)
        tenant = await server.join(wallet, role, f"demo-{role.lower()}", scopes=LOCAL_SCOPES[role])
        async with AsyncSightline(server.url, tenant.key) as api:
            me = await api.me()
        self._checks.equal(f"{role} has a key of its workspace", me.workspace_id, tenant.workspace_id)
        return tenant

    async def _request(self, api: AsyncSightline) -> str:
        self._console.print("[bold]2[/] coverage, quote, session, dispatch")
        operator = self._operator
        async with AsyncSightline(self._device_server.url, operator.key) as operator_api:
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
        payment = await self._sign_payment(api, quote)
        session = await api.sessions.create(*PLACE, seconds=DURATION_S, quote_id=quote.quote_id, payment=payment)
        self._checks.equal("rate", session.rate_per_second_micro_usdc, quote.rate_per_second_micro_usdc)
        self._checks.equal("hold", session.hold_micro_usdc, quote.estimated_total_micro_usdc)
        settlement = await api.sessions.settlement(session.id)
        self._checks.equal("settlement before the end", settlement.state, "NOT_READY")
        assigned = await api.sessions.dispatch(session.id)
        self._checks.equal("dispatched to", assigned.operator_workspace_id, operator.workspace_id)
        return session.id

    async def _sign_payment(self, api: AsyncSightline, quote: Quote) -> Payment | None:
        """Let the consumer's wallet sign the session's amount; None where the service has no escrow."""
        try:
            terms = await api.sessions.terms(quote.quote_id, seconds=DURATION_S)
        except NotFoundError:
            return None
        self._checks.equal("to be held (micro-USDC)", terms.max_amount_micro_usdc, quote.estimated_total_micro_usdc)
        # With it the printed API key pays for further views, without the wallet.
        await self._local.give_mandate(self._consumer, FUNDS)
        return sign_payment(terms, self._consumer.wallet)

    async def _check_hold(self, session: Session) -> None:
        """Check that the contract holds the amount while the session is LIVE."""
        if session.funds_state is None:
            return
        self._checks.equal("funds", session.funds_state, "HELD")
        held = await self._chain.balance_of(self._config.usdc_address, self._config.settlement_address)
        self._checks.equal("held by the contract (micro-USDC)", held, session.hold_micro_usdc)

    async def watch(self, api: AsyncSightline, session_id: str) -> None:
        """Wait until the session is LIVE, save a frame of it, and play its video. May be repeated."""
        self._console.print("[bold]3[/] live: the device publishes, the consumer watches")
        session = await self._until(
            "LIVE", partial(api.sessions.get, session_id), lambda seen: seen.state == SessionState.LIVE
        )
        await self._check_hold(session)
        first = trio.current_time()
        frame = await self._first_frame(api, session_id)
        self._frame_path.write_bytes(frame.jpeg)
        waited = trio.current_time() - first
        size = f"{frame.width}x{frame.height}, {len(frame.jpeg)} bytes"
        self._checks.note("first frame", f"{size}, {waited:.1f} s after LIVE")
        self._console.print(f"frame: {self._frame_path.resolve()}", highlight=False, soft_wrap=True)
        player = ("-m", "sightline_client.video.play", "--seconds", str(PLAY_S), "--json")
        played = json.loads(await self._local.run(*player, SIGHTLINE_WHEP_URL=str(session.whep_url)))
        self._checks.true(
            f"frames played by WHEP in {PLAY_S} s", played["frames"] >= PLAY_S * FRAMES_PER_S_MIN, played["frames"]
        )

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

    async def end_and_settle(self, api: AsyncSightline, session_id: str) -> None:
        """End the session, and check its charge, settlement and receipt, and all balances."""
        self._console.print("[bold]4[/] end, meter, settlement")
        ended = await api.sessions.end(session_id)
        settlement = await api.sessions.settlement(session_id)
        self._checks.true("settlement", settlement.state in {"PENDING", "CONFIRMED"}, settlement.state)
        charged = ended.clean_seconds * ended.rate_per_second_micro_usdc
        self._checks.note("clean seconds", str(ended.clean_seconds))
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
        await self._chain.receipt(done.tx_hash)  # waits for a node that is behind the server
        receipt = await api.sessions.receipt(session_id)
        result = await receipt.verify(deployment=self._config.deployment, rpc=self._config.rpc_url)
        self._checks.true("receipt", not result.skipped, "recomputed from its events, and paid on the chain")
        delivery = ended.delivery
        for_s = 0.0 if delivery is None else (delivery.last_at - delivery.first_at).total_seconds()
        self._checks.true("pictures at the consumer", for_s > 0, f"for {for_s:.1f} s")
        token = self._config.usdc_address
        if ended.funds_state is not None:
            kept = await self._chain.balance_of(token, self._config.settlement_address)
            self._checks.equal("left in the contract (micro-USDC)", kept, 0)
        left = await self._chain.balance_of(token, self._consumer.wallet.address)
        self._checks.equal("consumer's balance on the chain", left, FUNDS - charged)
        earned = await self._chain.balance_of(token, self._operator.wallet.address)
        self._checks.equal("operator's balance on the chain", earned, FUNDS + charged - fee)
        wallet = await self._until(
            "wallet",
            api.wallet.get,
            lambda seen: (seen.tracked_balance, seen.held_micro_usdc) == (FUNDS - charged, 0),
        )
        self._checks.equal("consumer's wallet, as the watcher saw it", wallet.tracked_balance, left)

    def _say_how_to_go_on(self) -> None:
        say = self._console.out
        say("\nThe server goes on; Ctrl-C stops it.")
        say(
            "Open this URL in a browser. It signs in as the demo's consumer by its test wallet; whoever has it can too."
        )
        say(console_url(self._local.url, self._consumer.wallet.private_key))
        say(other_devices_hint(self._local.url) or "")
        say(
            f"Ask for a view of {PLACE[0]}, {PLACE[1]}: the demo's device films it. "
            f"Without the wallet: {self._local.url}/\n"
        )
        say(exports(self._local.url, self._consumer, self._operator) + f"{own_command()} watch {PLACE[0]} {PLACE[1]}")
        for path in ("me", "sessions", "wallet/events"):
            say(f'curl -H "Authorization: Bearer $SIGHTLINE_API_KEY" $SIGHTLINE_URL/api/v1/{path}')
        self._console.file.flush()  # a pipe is read before this process ends


def run_demo(*, keep: bool, data_dir: Path | None, frame_path: Path) -> int:
    """Run the demo. Returns the exit code: 0 only if every check passed."""
    console = Console()
    directory = data_dir.absolute() if data_dir is not None else Path(tempfile.mkdtemp(prefix="sightline-demo-"))
    directory.mkdir(parents=True, exist_ok=True)
    is_kept = data_dir is not None
    demo = Demo(console, LocalServer(directory, settings=LOCAL_SETTINGS | ESCROW), frame_path)
    stop_like_ctrl_c()
    try:
        trio.run(partial(demo.run, keep=keep))
    except KeyboardInterrupt:
        return 0 if keep else 130
    except Exception as error:  # noqa: BLE001  for any failure the user is told which log to read
        is_kept = True
        for cause in _leaves(error):
            console.print(f"[bold red]failed[/] {type(cause).__name__}: {cause}", highlight=False, markup=True)
        console.print(
            f"server log: {directory / 'server.log'}; device log: {directory / 'device.log'}", highlight=False
        )
        return 1
    finally:
        if not is_kept:
            shutil.rmtree(directory, ignore_errors=True)
    return 0


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in _leaves(inner)]
    return [error]
