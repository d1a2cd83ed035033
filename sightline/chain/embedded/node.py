"""Runs the embedded chain as a child process."""

import json
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final, final

import trio

from sightline.chain.contracts.terms import ADMIN_DELAY_S, SESSION_CAP_MICRO
from sightline.domain.errors import ChainUnavailableError
from sightline.domain.value import Value
from sightline.system.children import Child, ChildCommand
from sightline.system.kept_child import keep_child

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

    directory: Path
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
    """Run the embedded chain as a child process while the context is open. Restart it, on the same port, when it exits.

    Raises:
        ChildFailedError: The child did not start; the message ends with its log.
    """
    port = 0

    def note_ready(child: Child) -> EmbeddedNode:
        nonlocal port
        report = json.loads(child.ready)
        port = int(report["port"])
        return _node_of(report, options.data_dir, child.pid)

    with _lone_error():
        async with trio.open_nursery() as nursery:
            yield await nursery.start(keep_child, lambda: _command(options, port), note_ready)
            nursery.cancel_scope.cancel()


@contextmanager
def _lone_error() -> Iterator[None]:
    """Unwrap a nursery's exception group that holds one error."""
    try:
        yield
    except BaseExceptionGroup as group:
        if len(group.exceptions) == 1:
            raise group.exceptions[0] from None
        raise


def _command(options: EmbeddedOptions, port: int) -> ChildCommand:
    args = [
        sys.executable, "-m", "sightline.chain.embedded", "--data-dir", str(options.data_dir),
        "--chain-id", str(options.chain_id), "--max-fee-bps", str(options.max_fee_bps),
        "--session-cap-micro", str(options.session_cap_micro), "--admin-delay-s", str(options.admin_delay_s),
        "--port", str(port),
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
    return _node_of(read_report(data_dir), data_dir, None)


def read_report(data_dir: Path) -> dict[str, Any]:
    """What the embedded chain of this directory reported when it was ready.

    Raises:
        ChainUnavailableError: None has been started in it.
    """
    try:
        report: dict[str, Any] = json.loads((data_dir / "endpoint.json").read_text(encoding="ascii"))
    except PermissionError as error:
        message = f"{error.filename} cannot be read. Run this as the account of the server."
        raise ChainUnavailableError(message) from error
    except OSError as error:
        raise ChainUnavailableError(
            f"No embedded chain has been started in {data_dir}. Name the data directory of a running server with "
            "--data-dir; `sightline dev` prints that of its own."
        ) from error
    return report


def _node_of(report: dict[str, Any], data_dir: Path, pid: int | None) -> EmbeddedNode:
    keys = json.loads((data_dir / "keys.json").read_text(encoding="ascii"))
    return EmbeddedNode(
        directory=data_dir,
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
