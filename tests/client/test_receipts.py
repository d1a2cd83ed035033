"""Receipts: those that a view returns, and the vectors that every verifier shares."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import trio
from eth_hash.auto import keccak as eth_keccak
from eth_utils.address import to_checksum_address
from hypothesis import example, given
from hypothesis import strategies as st

from sightline_client import (
    AsyncReceipt,
    AsyncSightline,
    ChainError,
    InvalidArgumentError,
    Receipt,
    ReceiptCheck,
    ReceiptError,
    SkipReason,
    TrustedDeployment,
)
from sightline_client.keccak import checked_address, keccak256
from tests.client.test_losses import start_assigned
from tests.e2e.server import Server, a_tenant, go_online

PLACE = (6.0, 6.0)
VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[2] / "docs" / "vectors" / "receipts.json").read_text())
TRUE: dict[str, Any] = VECTORS["receipts"][0]
CONTRACTS = TRUE["deployment"]
TRUSTED = TrustedDeployment(CONTRACTS["chainId"], CONTRACTS["settlementAddress"], CONTRACTS["usdcAddress"])


@contextmanager
def a_node(chain: dict[str, Any]) -> Iterator[str]:
    """URL of a JSON-RPC endpoint that has the transaction of a vector."""

    class Node(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            call = json.loads(self.rfile.read(int(self.headers["content-length"])))
            found = {
                "eth_chainId": hex(chain["chainId"]),
                "eth_getTransactionReceipt": chain["receipt"],
            }
            body = json.dumps({"jsonrpc": "2.0", "id": call["id"], "result": found[call["method"]]}).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Write nothing to stderr."""

    with HTTPServer(("127.0.0.1", 0), Node) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def node() -> Iterator[str]:
    with a_node(TRUE["chain"]) as url:
        yield url


@pytest.mark.parametrize("vector", VECTORS["receipts"], ids=lambda vector: vector["name"])
def test_a_receipt_is_verified_as_its_vector_says(vector: dict[str, Any]) -> None:
    deployment = TRUSTED if vector["deployment"] else None
    receipt = Receipt(vector["receipt"])
    with a_node(vector["chain"] or TRUE["chain"]) as url:
        rpc = url if vector["chain"] and deployment else None
        if vector["failures"]:
            with pytest.raises(ReceiptError) as refused:
                receipt.verify(deployment=deployment, rpc=rpc)
            found = [{"check": str(failure.check), "line": failure.line} for failure in refused.value.failures]
            assert found == vector["failures"]
        else:
            skipped = receipt.verify(deployment=deployment, rpc=rpc).skipped
            assert {str(check): str(reason) for check, reason in skipped.items()} == vector["skipped"]


@pytest.mark.parametrize("vector", VECTORS["forged"], ids=lambda vector: vector["name"])
def test_a_forged_receipt_is_refused_with_the_lines_that_are_wrong(vector: dict[str, Any], node: str) -> None:
    data = deepcopy(TRUE["receipt"])
    *path, last = vector["path"]
    place = data
    for step in path:
        place = place[step]
    place[last] = vector["value"]
    with pytest.raises(ReceiptError) as refused:
        Receipt(data).verify(deployment=TRUSTED, rpc=node)
    found = [{"check": str(failure.check), "line": failure.line} for failure in refused.value.failures]
    assert found == vector["failures"]
    assert found[0]["line"] in str(refused.value)


@given(st.binary(max_size=300))
@example(b"x" * 135)
@example(b"x" * 136)
def test_keccak256_is_that_of_the_library(data: bytes) -> None:
    assert keccak256(data) == eth_keccak(data)


@given(st.binary(min_size=20, max_size=20), st.integers(0, 39))
def test_the_checksum_of_an_address_that_a_person_wrote_must_fit(value: bytes, place: int) -> None:
    plain = "0x" + value.hex()
    right = to_checksum_address(plain)
    for text in (plain, right, "0x" + plain[2:].upper()):
        assert checked_address(text) == text
    wrong = right[: place + 2] + right[place + 2].swapcase() + right[place + 3 :]
    if wrong not in (right, plain, "0x" + plain[2:].upper()):
        with pytest.raises(ValueError, match="is a character wrong"):
            checked_address(wrong)
    with pytest.raises(ValueError, match="40 hexadecimal digits"):
        checked_address(right + "0")


async def test_a_payment_is_verified_only_by_a_deployment_and_a_node_that_the_caller_names(node: str) -> None:
    receipt = AsyncReceipt(TRUE["receipt"])
    assert (await receipt.verify()).skipped == {ReceiptCheck.SETTLED: SkipReason.DEPLOYMENT_MISSING}
    result = await receipt.verify(deployment=TRUSTED)
    assert result.skipped == {ReceiptCheck.SETTLED: SkipReason.TRANSACTION_MISSING}
    with pytest.raises(InvalidArgumentError, match="A receipt may name any contract"):
        await receipt.verify(rpc=node)
    with pytest.raises(ChainError, match="Check its URL"):
        await receipt.verify(deployment=TRUSTED, rpc="http://127.0.0.1:1")
    assert (await receipt.verify(deployment=TRUSTED, rpc=node)).skipped == {}


async def test_a_receipt_without_a_charge_waits_for_no_payment(running_server: Server) -> None:
    """The server pays the first such session at once and the second one up to ten minutes later."""
    consumer = await a_tenant(running_server.url, "CONSUMER", "free-view")
    operator = await a_tenant(running_server.url, "SUPPLIER", "free-camera")
    await go_online(running_server.url, operator, PLACE)
    async with trio.open_nursery() as nursery, AsyncSightline(running_server.url, consumer.key) as sl:
        nursery.start_soon(start_assigned, running_server.url, operator)
        for _ in range(2):
            async with sl.view(*PLACE, seconds=60) as view:
                pass  # nothing is published, so nothing is charged
            receipt = await view.receipt(wait_s=5)
            assert receipt.charged == 0
            config = await sl.config()
            await receipt.verify(deployment=config.deployment, rpc=config.rpc_url)
            events = [event.model_dump() async for event in sl.sessions.meter_events(receipt.session.id)]
            assert [event["kind"] for event in events][:2] == ["CREATED", "ASSIGNED"]
        nursery.cancel_scope.cancel()
