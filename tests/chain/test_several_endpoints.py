"""Several RPC endpoints: reads fail over, transactions go to all, and CONFIRMED needs two that agree."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
import structlog.testing
import trio
import trio.testing

from sightline.chain.relayer.broadcast import broadcast
from sightline.chain.rpc.client import JsonRpc, RpcOptions, open_rpc
from sightline.chain.rpc.health import EndpointFault
from sightline.domain.errors import ChainUnavailableError
from sightline.ports.ledger import Attempt, SettlementState
from tests.chain.endpoint import (
    Endpoint,
    altered_event,
    failed_receipt,
    hang,
    honest,
    lose_request,
    no_receipt,
    of_method,
    open_endpoint,
)
from tests.chain.world import World, ids, running, until

SEND = "eth_sendRawTransaction"
RECEIPT = "eth_getTransactionReceipt"
ATTEMPT = Attempt(
    session_id="a session", nonce=0, tx_hash="0x" + "11" * 32, raw=b"raw", max_fee_wei=2, tip_wei=1, signed_at_ms=0
)


@dataclass
class Node:
    """An endpoint in the test process with one answer for each method."""

    answers: dict[str, Any] = field(default_factory=dict)
    head: int = 100
    hangs: bool = False
    asked: list[str] = field(default_factory=list)

    async def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(request["method"])
        if self.hangs:
            await trio.sleep_forever()
        known = {"eth_chainId": "0x7", "eth_blockNumber": hex(self.head)} | self.answers
        answer = known[request["method"]]
        return {"jsonrpc": "2.0", "id": request["id"]} | (answer if isinstance(answer, dict) else {"result": answer})


@asynccontextmanager
async def client_of(**nodes: Node) -> AsyncIterator[JsonRpc]:
    """A client of these nodes, in their order."""

    async def handle(request: httpx.Request) -> httpx.Response:
        assert isinstance(request.stream, httpx.AsyncByteStream)
        body = json.loads(b"".join([chunk async for chunk in request.stream]))
        node = nodes[request.url.host]
        items = body if isinstance(body, list) else [body]
        answers = [await node.answer(item) for item in items]
        return httpx.Response(200, json=answers if isinstance(body, list) else answers[0])

    async with httpx.AsyncClient(transport=httpx.MockTransport(handle)) as http:
        yield JsonRpc(http, ",".join(f"http://{name}" for name in nodes), RpcOptions(timeout_ms=60_000), ids)


async def test_a_read_is_answered_within_two_seconds_when_the_first_endpoint_hangs(
    autojump_clock: trio.testing.MockClock,
) -> None:
    first, second = Node(hangs=True), Node(answers={"eth_gasPrice": "0x5"})
    async with client_of(first=first, second=second) as rpc:
        began = trio.current_time()
        assert await rpc.call("eth_gasPrice") == "0x5"
        assert trio.current_time() - began <= 2
        await rpc.call("eth_gasPrice")
        assert first.asked == ["eth_gasPrice"], "an endpoint that hangs is not asked at each read"


async def test_an_endpoint_that_hung_is_asked_again_after_a_minute(autojump_clock: trio.testing.MockClock) -> None:
    first, second = Node(hangs=True, answers={"eth_gasPrice": "0x5"}), Node(answers={"eth_gasPrice": "0x6"})
    async with client_of(first=first, second=second) as rpc:
        assert await rpc.call("eth_gasPrice") == "0x6"
        first.hangs = False
        await trio.sleep(61)
        assert await rpc.call("eth_gasPrice") == "0x5"


async def test_an_endpoint_that_lags_answers_no_reads_until_it_has_caught_up() -> None:
    late, fresh = Node(head=90, answers={"eth_gasPrice": "0x5"}), Node(head=100, answers={"eth_gasPrice": "0x6"})
    async with client_of(late=late, fresh=fresh) as rpc:
        await rpc.compare_heads()
        assert await rpc.call("eth_gasPrice") == "0x6"
        assert rpc.endpoints[0].health.faults[EndpointFault.LAGS] == 1
        late.head = 99
        await rpc.compare_heads()
        assert await rpc.call("eth_gasPrice") == "0x5"


async def test_one_of_three_endpoints_cannot_exclude_the_others_by_a_head_that_does_not_exist() -> None:
    first, liar, third = (Node(answers={"eth_gasPrice": price}) for price in ("0x5", "0x6", "0x7"))
    liar.head = 2**60
    async with client_of(first=first, liar=liar, third=third) as rpc:
        await rpc.compare_heads()
        assert await rpc.call("eth_gasPrice") == "0x5"


async def test_an_endpoint_of_another_chain_answers_no_reads() -> None:
    other = Node(answers={"eth_chainId": "0x1", "eth_gasPrice": "0x5"})
    async with client_of(other=other, ours=Node(answers={"eth_gasPrice": "0x6"})) as rpc:
        rpc.chain_id = 7
        await rpc.compare_heads()
        assert await rpc.call("eth_gasPrice") == "0x6"
        assert rpc.endpoints[0].health.faults[EndpointFault.OTHER_CHAIN] == 1


@pytest.mark.parametrize("message", ["already known", "nonce too low", "insufficient funds for gas"])
async def test_a_transaction_that_one_endpoint_took_is_sent_whatever_the_others_say(message: str) -> None:
    refusing = Node(answers={SEND: {"error": {"code": -32000, "message": message}}})
    taking = Node(answers={SEND: ATTEMPT.tx_hash})
    async with client_of(refusing=refusing, taking=taking) as rpc:
        answers = await broadcast(rpc, [ATTEMPT])
        assert (answers.taken, answers.refused) == ([ATTEMPT.tx_hash], [])
        assert (refusing.asked, taking.asked) == ([SEND], [SEND])


async def test_a_transaction_that_one_endpoint_knows_is_not_refused_because_another_refuses_it() -> None:
    refusing = Node(answers={SEND: {"error": {"code": -32000, "message": "insufficient funds for gas"}}})
    knowing = Node(answers={SEND: {"error": {"code": -32000, "message": "already known"}}})
    async with client_of(refusing=refusing, knowing=knowing) as rpc:
        assert (await broadcast(rpc, [ATTEMPT])).taken == [ATTEMPT.tx_hash]


async def test_a_broadcast_waits_for_no_endpoint_that_hangs(autojump_clock: trio.testing.MockClock) -> None:
    hanging, taking = Node(hangs=True), Node(answers={SEND: ATTEMPT.tx_hash})
    async with client_of(hanging=hanging, taking=taking) as rpc:
        began = trio.current_time()
        assert (await broadcast(rpc, [ATTEMPT])).taken == [ATTEMPT.tx_hash]
        assert trio.current_time() - began <= 2
        assert hanging.asked == [SEND]


async def test_a_broadcast_that_no_endpoint_answers_has_an_unknown_outcome(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with client_of(first=Node(hangs=True), second=Node(hangs=True)) as rpc:
        with pytest.raises(ChainUnavailableError):
            await broadcast(rpc, [ATTEMPT])


async def test_endpoints_are_named_without_the_credentials_of_their_urls() -> None:
    urls = "http://me:secret@127.0.0.1:1/v2/key?apikey=key,http://127.0.0.1:1/v2/other"
    with structlog.testing.capture_logs() as logs:
        async with open_rpc(urls, RpcOptions(timeout_ms=500, tries=1), ids) as rpc:
            with pytest.raises(ChainUnavailableError):
                await rpc.call("eth_blockNumber")
    assert {entry["endpoint"] for entry in logs} == {"127.0.0.1:1#1", "127.0.0.1:1#2"}
    assert not any(part in str(logs) for part in ("secret", "key"))


async def test_an_error_of_a_caller_is_not_changed_by_a_second_endpoint(world: World) -> None:
    with pytest.raises(LookupError):
        async with open_rpc(f"{world.node_url},{world.endpoint.url}", RpcOptions(), ids):
            raise LookupError("of the caller")


# On a whole chain.


@pytest.fixture
async def second(world: World) -> AsyncIterator[Endpoint]:
    async with open_endpoint(world.node_url) as endpoint:
        yield endpoint


def logged(logs: list[Any], event: str) -> Callable[[], Awaitable[bool]]:
    async def is_logged() -> bool:
        return any(entry["event"] == event for entry in logs)

    return is_logged


@pytest.mark.parametrize("lie", [failed_receipt, no_receipt, altered_event])
@pytest.mark.parametrize("place", [0, 1])
async def test_a_settlement_is_confirmed_only_when_both_endpoints_report_it(
    world: World, second: Endpoint, lie: Any, place: int
) -> None:
    await world.ready_parties()
    liar = (world.endpoint, second)[place]
    liar.fault = of_method(RECEIPT, lie)
    with structlog.testing.capture_logs() as logs:
        async with running(world, rpc_url=f"{world.endpoint.url},{second.url}") as service:
            session_id = await world.end_session()
            service.notify()
            await until("the lie is logged", logged(logs, "chain_endpoint_disagrees"))
            assert (await world.record(session_id)).state in (SettlementState.SENT, SettlementState.MINED)
            assert world.updates == []
            assert all(health.faults[EndpointFault.DISAGREES] for health in service.endpoints())
            liar.fault = honest
            await world.until_told(session_id)
            await world.assert_books_balance()
    assert (await world.record(session_id)).state is SettlementState.CONFIRMED
    named = {entry["endpoint"] for entry in logs if entry["event"] == "chain_endpoint_disagrees"}
    assert named == {health.name for health in service.endpoints()}


@pytest.mark.parametrize(
    ("lie", "others_count"), [(failed_receipt, 2), (no_receipt, 2), (altered_event, 2), (failed_receipt, 3)]
)
async def test_an_endpoint_that_others_contradict_is_named_and_delays_nothing(
    world: World, lie: Any, others_count: int
) -> None:
    await world.ready_parties()
    world.endpoint.fault = of_method(RECEIPT, lie)
    async with AsyncExitStack() as stack:
        agreeing = [await stack.enter_async_context(open_endpoint(world.node_url)) for _ in range(others_count)]
        urls = ",".join(each.url for each in (world.endpoint, *agreeing))
        with structlog.testing.capture_logs() as logs:
            async with running(world, rpc_url=urls) as service:
                session_id = await world.end_session()
                service.notify()
                await world.until_told(session_id)
                await world.assert_books_balance()
                liar, *others = service.endpoints()
    assert (await world.settled_on_chain())[session_id] == 60_000
    assert liar.faults[EndpointFault.DISAGREES]
    assert not any(other.faults[EndpointFault.DISAGREES] for other in others)
    named = {entry["endpoint"] for entry in logs if entry["event"] == "chain_endpoint_disagrees"}
    assert named == {liar.name}


@pytest.mark.parametrize("fault", [lose_request, hang])
async def test_a_session_is_settled_while_the_first_of_three_endpoints_fails(
    world: World, second: Endpoint, fault: Any
) -> None:
    await world.ready_parties()
    async with open_endpoint(world.node_url) as third:
        urls = f"{world.endpoint.url},{second.url},{third.url}"
        async with running(world, rpc_url=urls) as service:
            world.endpoint.fault = fault
            session_id = await world.end_session()
            service.notify()
            await world.until_told(session_id)
            await world.assert_books_balance()
            assert service.endpoints()[0].faults[EndpointFault.UNREACHABLE]
    assert (await world.settled_on_chain())[session_id] == 60_000


async def test_a_settlement_is_mined_through_one_endpoint_and_confirmed_when_the_second_is_back(
    world: World, second: Endpoint
) -> None:
    await world.ready_parties()
    async with running(world, rpc_url=f"{world.endpoint.url},{second.url}") as service:
        world.endpoint.is_down = True
        session_id = await world.end_session()
        service.notify()
        await world.until_state(session_id, SettlementState.MINED)
        assert world.updates == []
        world.endpoint.is_down = False
        await world.until_told(session_id)
        await world.assert_books_balance()


async def test_every_endpoint_gets_every_settlement(world: World, second: Endpoint) -> None:
    await world.ready_parties()
    async with running(world, rpc_url=f"{world.endpoint.url},{second.url}") as service:
        session_id = await world.end_session()
        service.notify()
        await world.until_told(session_id)
    assert world.endpoint.seen.count(SEND) == second.seen.count(SEND) == 1


async def test_an_endpoint_that_is_behind_delays_a_settlement_and_contradicts_nobody(
    world: World, second: Endpoint
) -> None:
    await world.ready_parties()
    old = await world.rpc.call("eth_getBlockByNumber", "latest", False)

    async def behind(request: dict[str, Any], forward: Any) -> dict[str, Any] | None:
        head = {"jsonrpc": "2.0", "id": request["id"]}
        if request["method"] == "eth_getBlockByNumber" and request["params"][0] == "latest":
            return head | {"result": old}
        if request["method"] == RECEIPT:
            return head | {"result": None}
        answer: dict[str, Any] = await forward(request)
        return answer

    second.fault = behind
    with structlog.testing.capture_logs() as logs:
        async with running(world, rpc_url=f"{world.endpoint.url},{second.url}") as service:
            session_id = await world.end_session()
            service.notify()

            async def is_asked() -> bool:
                return second.seen.count(RECEIPT) >= 3

            await until("the second endpoint is asked for the receipt", is_asked)
            assert (await world.record(session_id)).state in (SettlementState.SENT, SettlementState.MINED)
            second.fault = honest
            await world.until_told(session_id)
            assert not any(health.faults[EndpointFault.DISAGREES] for health in service.endpoints())
    assert [entry for entry in logs if entry["event"] == "chain_endpoint_disagrees"] == []
