"""The server's side of the embedded chain: starts the child process and calls its faucet."""

import json
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final, final

import structlog
import trio
from eth_utils.address import to_checksum_address

from sightline.chain.contracts.terms import ADMIN_DELAY_S, SESSION_CAP_MICRO
from sightline.chain.rpc.client import JsonRpc, RpcOptions, RpcResponseError, open_rpc
from sightline.domain.errors import ChainUnavailableError
from sightline.domain.value import Value
from sightline.ports.chain import FaucetPayment
from sightline.ports.ids import Ids
from sightline.system.children import Child, ChildCommand, ChildFailedError, RestartPause, run_child

log = structlog.get_logger()

CHAIN_ID_DEFAULT: Final = 84_532_001
"""Default chain id of the embedded chain. No public chain uses it, and it is not a well-known development id."""


@final
class EmbeddedOptions(Value, kw_only=True):
    """Options of the embedded chain. All but the directory are fixed by the first start in a directory."""

    data_dir: Path
    chain_id: int = CHAIN_ID_DEFAULT
    max_fee_bps: int = 5_000
    session_cap_micro: int = SESSION_CAP_MICRO
    consent_required: bool = False
    admin_delay_s: int = ADMIN_DELAY_S
    is_escrow: bool = False
    """Whether SessionEscrow is deployed, in place of SessionSettlement."""


@final
class EmbeddedNode(Value, kw_only=True):
    """Addresses and keys of a running embedded chain."""

    url: str
    chain_id: int
    genesis_hash: str
    usdc_address: str
    settlement_address: str
    relayer_key: bytes
    meter_key: bytes
    refund_key: bytes
    """Key of the fee receiver, from which refunds are paid."""
    pid: int | None
    """None if another process runs it."""


@asynccontextmanager
async def open_embedded_node(options: EmbeddedOptions) -> AsyncIterator[EmbeddedNode]:
    """Run the embedded chain as a child process while the context is open. Restart it when it exits.

    Raises:
        ChildFailedError: The child did not start; the message ends with its log.
    """
    keeper = _Keeper(options)
    with lone_error():
        async with trio.open_nursery() as nursery:
            child: Child = await nursery.start(keeper.run)
            yield _node_of(json.loads(child.ready), options.data_dir, child.pid)
            keeper.leave()


@contextmanager
def lone_error() -> Iterator[None]:
    """Unwrap a nursery's exception group that holds one error."""
    try:
        yield
    except BaseExceptionGroup as group:
        if len(group.exceptions) == 1:
            raise group.exceptions[0] from None
        raise


@final
class _Keeper:
    """Restarts the child process when it exits, always on the port of the first start."""

    def __init__(self, options: EmbeddedOptions) -> None:
        self._options = options
        self._port = 0
        self._child: Child | None = None
        self._leaving = False

    def leave(self) -> None:
        self._leaving = True
        if self._child is not None:
            self._child.stop()

    async def run(self, *, task_status: trio.TaskStatus[Child]) -> None:
        pause, began = RestartPause(), trio.current_time()
        await self._run_one(task_status)
        while not self._leaving:
            pause_s = pause.after(ran_s=trio.current_time() - began)
            log.error("embedded_chain_ended", restart_in_s=pause_s)
            await trio.sleep(pause_s)
            began = trio.current_time()
            try:
                await self._run_one(None)
            except ChildFailedError as error:
                log.error("embedded_chain_not_restarted", reason=str(error))  # the reason is enough; no traceback

    async def _run_one(self, task_status: trio.TaskStatus[Child] | None) -> None:
        with lone_error():
            async with trio.open_nursery() as nursery:
                self._child = await nursery.start(run_child, self._command())
                self._port = int(json.loads(self._child.ready)["port"])
                if task_status is not None:
                    task_status.started(self._child)
                if self._leaving:
                    self._child.stop()
        self._child = None

    def _command(self) -> ChildCommand:
        options = self._options
        args = [
            sys.executable, "-m", "sightline.chain.embedded", "--data-dir", str(options.data_dir),
            "--chain-id", str(options.chain_id), "--max-fee-bps", str(options.max_fee_bps),
            "--session-cap-micro", str(options.session_cap_micro), "--admin-delay-s", str(options.admin_delay_s),
            "--port", str(self._port),
        ]  # fmt: skip
        if options.consent_required:
            args.append("--consent-required")
        if options.is_escrow:
            args.append("--escrow")
        return ChildCommand(name="chain", args=args, log_path=options.data_dir / "chain.log")


def running_node(data_dir: Path) -> EmbeddedNode:
    """The embedded chain that another process runs in this directory.

    Raises:
        ChainUnavailableError: No embedded chain has been started in this directory.
    """
    return _node_of(_read_report(data_dir), data_dir, None)


def _read_report(data_dir: Path) -> dict[str, Any]:
    try:
        report: dict[str, Any] = json.loads((data_dir / "endpoint.json").read_text(encoding="ascii"))
    except OSError as error:
        raise ChainUnavailableError(
            f"No embedded chain has been started in {data_dir}. Name the data directory of a running server with "
            "--data-dir; `sightline dev` prints that of its own."
        ) from error
    return report


def _node_of(report: dict[str, Any], data_dir: Path, pid: int | None) -> EmbeddedNode:
    keys = json.loads((data_dir / "keys.json").read_text(encoding="ascii"))
    return EmbeddedNode(
        url=f"http://127.0.0.1:{report['port']}",
        chain_id=report["chainId"],
        genesis_hash=report["genesisHash"],
        usdc_address=report["usdcAddress"],
        settlement_address=report["settlementAddress"],
        relayer_key=bytes.fromhex(keys["relayer"].removeprefix("0x")),
        meter_key=bytes.fromhex(keys["meter"].removeprefix("0x")),
        refund_key=bytes.fromhex(keys["feeReceiver"].removeprefix("0x")),
        pid=pid,
    )


@final
class EmbeddedFaucet:
    """The faucet of the embedded chain. Requests carry the secret that is stored in the chain's data directory."""

    def __init__(self, rpc: JsonRpc, data_dir: Path) -> None:
        self._rpc = rpc
        self._secret_path = data_dir / "faucet.secret"

    async def fund(self, address: str, amount_micro: int) -> FaucetPayment:
        """Mint test USDC to the address and top up its native coin."""
        secret = self._secret_path.read_text(encoding="ascii").strip()
        account = to_checksum_address(address)
        (result,) = await self._rpc.send_once([("sightline_faucet", [secret, account, str(amount_micro)])])
        if isinstance(result, RpcResponseError):
            raise ChainUnavailableError(f"the faucet refused: {result.message}")
        return FaucetPayment(tx_hash=result["transactionHash"], address=account, amount_micro=amount_micro)


@asynccontextmanager
async def open_running_faucet(data_dir: Path, ids: Ids) -> AsyncIterator[EmbeddedFaucet]:
    """Open the faucet of an embedded chain that another process runs in this directory.

    Raises:
        ChainUnavailableError: No embedded chain has been started in this directory.
    """
    report = _read_report(data_dir)
    async with open_rpc(f"http://127.0.0.1:{report['port']}", RpcOptions(), ids) as rpc:
        yield EmbeddedFaucet(rpc, data_dir)
