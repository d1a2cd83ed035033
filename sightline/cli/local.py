"""A server of its own on this machine, with funded workspaces and a device: what `demo` and `dev` run."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, final

import trio

from sightline.domain.value import Value, hiding
from sightline.system.files import write_durably
from sightline_client import AsyncChain, AsyncSightline, SightlineError
from sightline_client.commands.access import SCOPES
from sightline_client.errors import NotAuthenticatedError
from sightline_client.escrow import sign_mandate
from sightline_client.money import MicroUsdc
from sightline_client.runtime import unix_s
from sightline_client.wallet import LocalWallet

PLACE: Final = (52.520008, 13.404954)
"""Latitude and longitude of the example place of the documentation, in Berlin."""
COVERAGE_M: Final = 2_000
LOCAL_DEFAULTS: Final = {"SIGHTLINE_VIDEO_CLIP_SECONDS": "30", "SIGHTLINE_INTERNAL_PORT": "0"}
"""Settings of a local server that the environment may change: every command can be tried, and no port is taken."""
LOCAL_SETTINGS: Final = {"SIGHTLINE_WEBHOOK_ALLOW_LOOPBACK": "true"}
"""Webhooks can be tried with a program on the same machine."""
ESCROW: Final = {"SIGHTLINE_FUNDS_POLICY": "escrow"}
LOCAL_SCOPES: Final[Mapping[str, Sequence[str]]] = {"CONSUMER": ["webhooks:write"], "SUPPLIER": []}
"""Scopes of the printed keys beside those of their roles."""
RATE_MAX: Final = 10_000
DAY_S: Final = 86_400
PATIENCE_S: Final = 90.0
READY_WITHIN_S: Final = 90.0
"""A first start creates the database and the chain; a busy machine with two cores took 36 s."""


def console_url(url: str, wallet_key: str) -> str:
    """The link of the console that signs in with a test wallet. Browsers do not send the fragment with the key."""
    return f"{url}/console/#/start?testWallet={wallet_key}"


def own_command() -> str:
    """How a shell starts `sightline` of this installation: by name if PATH finds it, else by its path."""
    script = Path(sys.executable).with_name("sightline")
    found = shutil.which("sightline")
    if found is not None and script.exists() and Path(found).samefile(script):
        return "sightline"
    return shlex.quote(str(script)) if script.exists() else f"{shlex.quote(sys.executable)} -m sightline_client"


def exports(url: str, consumer: "LocalTenant", operator: "LocalTenant") -> str:
    """The lines that give a shell the server, and the consumer's key and wallet, for every command and program."""
    return (
        f"export SIGHTLINE_URL={url}\n"
        f"export SIGHTLINE_API_KEY={consumer.key}\n"
        f"export SIGHTLINE_WALLET_KEY={consumer.wallet.private_key}\n"
        f"# The operator's key, for a terminal of its own: export SIGHTLINE_API_KEY={operator.key}\n"
    )


class LocalServerError(SightlineError):
    """A program of the local server failed.

    Attributes:
        log_path: Log that says more; None: the message is the program's own reason.
    """

    def __init__(self, message: str, log_path: Path | None = None) -> None:
        self.log_path = log_path
        super().__init__(message if log_path is None else f"{message} Its log: {log_path}")


@final
class LocalTenant(Value, kw_only=True):
    """A workspace with its wallet and API key."""

    wallet: LocalWallet
    workspace_id: str
    key: str

    __repr__ = hiding("key")


@final
class LocalServer:
    """Programs of one directory: the server, its devices and its faucet. Logs are files of the directory."""

    def __init__(self, directory: Path, *, port: int = 0, settings: Mapping[str, str] | None = None) -> None:
        """Args: settings: Variables of the server, beside those of the environment."""
        self.directory = directory
        self._env = dict(settings or {})
        self.url = ""
        self._port = port
        self._log_start = 0

    @property
    def data_dir(self) -> Path:
        """The server's data directory."""
        return self.directory / "data"

    @property
    def log_path(self) -> Path:
        """The server's log."""
        return self.directory / "server.log"

    @property
    def device_log_path(self) -> Path:
        """The devices' log."""
        return self.directory / "device.log"

    @asynccontextmanager
    async def running(self) -> AsyncIterator[trio.Process]:
        """Run the server for the length of the block; `url` is set when it is ready."""
        options = ["--port", str(self._port), "--data-dir", str(self.data_dir)]
        command = [sys.executable, "-m", "sightline.cli", "serve", *options]
        with self.log_path.open("ab") as log_file:
            self._log_start = log_file.tell()
            server = await trio.lowlevel.open_process(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log_file,
                env=LOCAL_DEFAULTS | os.environ | self._env,
            )
        try:
            self.url = await self._await_ready(server)
            yield server
        finally:
            await _stop(server)

    async def _await_ready(self, server: trio.Process) -> str:
        assert server.stdout is not None
        said = b""
        with trio.move_on_after(READY_WITHIN_S):
            while not said.endswith(b"\n"):
                chunk = await server.stdout.receive_some()
                if not chunk:
                    break
                said += chunk
        word, _, url = said.decode().strip().partition(" ")
        if word != "ready":
            raise self._not_ready()
        return url

    def _not_ready(self) -> LocalServerError:
        """Say why the server did not become ready: its last line that is not of the log.

        A server that uses the directory already writes to the same log meanwhile.
        """
        lines = self.log_path.read_bytes()[self._log_start :].decode(errors="replace").splitlines()
        reason = next((line for line in reversed(lines) if line and not line.startswith("{")), None)
        if reason is not None:
            return LocalServerError(reason)
        return LocalServerError("The server did not become ready.", self.log_path)

    @asynccontextmanager
    async def device(self, operator: LocalTenant, place: tuple[float, float] = PLACE) -> AsyncIterator[None]:
        """Run an operator's device at the place for the length of the block."""
        env = {**os.environ, "SIGHTLINE_API_KEY": operator.key}
        command = [sys.executable, "-m", "sightline.cli", "device", "--api", self.url]
        with self.device_log_path.open("ab") as log_file:
            device = await trio.lowlevel.open_process(
                [*command, "--lat", str(place[0]), "--lng", str(place[1])],
                stdin=subprocess.DEVNULL,
                stdout=log_file,
                stderr=log_file,
                env=env,
            )
        try:
            yield
        finally:
            await _stop(device)

    async def run(self, *args: str, **variables: str) -> str:
        """Run a Sightline program until it exits, with more environment variables. Returns its output."""
        command, env = [sys.executable, *args], os.environ | variables
        try:
            done = await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False, env=env)
        except BaseExceptionGroup as group:  # of the nursery in which the process runs
            if group.subgroup(KeyboardInterrupt) is None:
                raise
            raise KeyboardInterrupt from None
        if done.returncode != 0:
            raise LocalServerError(f"{' '.join(args)}: exit code {done.returncode}: {done.stderr.decode()[-500:]}")
        return done.stdout.decode()

    async def fund(self, address: str, micro_usdc: int) -> None:
        """Send test USDC and native coin to a wallet."""
        data = str(self.directory / "data")
        line = ("-m", "sightline.cli", "faucet", address, str(MicroUsdc(micro_usdc).usdc), "--data-dir", data)
        await self.run(*line, SIGHTLINE_URL=self.url)  # else it looks for the payment on the server of the shell

    def kept_wallet(self, name: str) -> LocalWallet:
        """The wallet of this name, the same in each run with this directory."""
        path = self.directory / f"{name}-wallet.key"
        if not path.exists():
            write_durably(path, LocalWallet.create().private_key.encode())
        return LocalWallet.from_key(path.read_text())

    async def funded_wallet(self, micro_usdc: int, wallet: LocalWallet | None = None) -> LocalWallet:
        """Fund and approve a wallet, by default a new one. Half of the amount, if it has that, is enough."""
        wallet = wallet or LocalWallet.create()
        async with AsyncSightline(self.url) as api:
            config = await api.config()
        chain, token, spender = AsyncChain(config.rpc_url), config.usdc_address, config.settlement_address
        if await chain.balance_of(token, wallet.address) < micro_usdc // 2:
            await self.fund(wallet.address, micro_usdc)
        if await chain.allowance(token, wallet.address, spender) < micro_usdc // 2:
            await chain.approve(wallet, token=token, spender=spender, amount=micro_usdc)
        return wallet

    async def join(self, wallet: LocalWallet, role: str, slug: str, *, scopes: Sequence[str] = ()) -> LocalTenant:
        """Create a workspace of the wallet unless it has it, with a key that has the scopes of its role and these.

        The key is kept in the directory, for the next run with it.
        """
        path = self.directory / f"{slug}.key"
        async with AsyncSightline(self.url) as api:
            await api.auth.sign_in(wallet)
            found = next((each.id for each in await api.workspaces.list() if each.slug == slug), None)
            workspace_id = found or (await api.workspaces.create(wallet, slug=slug, name=slug, roles=[role])).id
            key = path.read_text() if path.exists() else ""
            if not await self._is_key_of(key, workspace_id):
                await api.auth.select(workspace_id)
                key = (await api.keys.mint(workspace_id, label="local", scopes=[*SCOPES[role], *scopes])).plaintext
                write_durably(path, key.encode())
        return LocalTenant(wallet=wallet, workspace_id=workspace_id, key=key)

    async def _is_key_of(self, key: str, workspace_id: str) -> bool:
        if not key:
            return False
        async with AsyncSightline(self.url, key) as api:
            try:
                return (await api.me()).workspace_id == workspace_id
            except NotAuthenticatedError:  # revoked, or of a database that was deleted
                return False

    async def give_mandate(self, tenant: LocalTenant, micro_usdc: int) -> None:
        """With escrow, let a consumer's API key pay for views without its wallet, for a day."""
        async with AsyncSightline(self.url, tenant.key) as api:
            mandate = sign_mandate(
                await api.config(), tenant.wallet, max_per_session=micro_usdc, max_per_day=micro_usdc,
                max_rate_per_second=RATE_MAX, valid_until=int(unix_s()) + DAY_S,
            )  # fmt: skip
            await api.wallet.set_mandate(mandate)


async def _stop(process: trio.Process) -> None:
    with trio.CancelScope(shield=True):
        process.terminate()
        await process.wait()
