"""Fees by the fee history, and gas limits by the node's estimate."""

from typing import Any

import pytest
import trio

from sightline.chain.fees import GAS_MAX, suggested
from sightline.chain.rpc.client import RpcResponseError
from sightline.domain.errors import ChainUnavailableError
from sightline.ports.ledger import SettlementState
from tests.chain.relayer.desk import Desk
from tests.chain.relayer.settling_node import RefusedCallError

GWEI = 10**9
HEAD = {"baseFeePerGas": hex(3 * GWEI)}
NO_METHOD = RpcResponseError(-32601, "the method eth_feeHistory does not exist/is not available")


def history(*tips: int, base: int = 4 * GWEI) -> dict[str, Any]:
    fees = [hex(3 * GWEI)] * len(tips) + [hex(base)]
    return {"oldestBlock": "0x1", "baseFeePerGas": fees, "reward": [[hex(tip)] for tip in tips]}


def test_the_tip_is_the_median_block_of_the_history_and_the_maximum_twice_the_next_base_fee_above_it() -> None:
    fees = suggested(HEAD, history(9, 1, 100 * GWEI, 2, 3), hex(7 * GWEI))
    assert (fees.tip_wei, fees.max_fee_wei) == (3, 8 * GWEI + 3)


def test_a_block_in_which_nobody_paid_a_tip_does_not_count() -> None:
    assert suggested(HEAD, history(0, 0, 0, 5, 6, 0), hex(7 * GWEI)).tip_wei == 5


@pytest.mark.parametrize("empty", [history(0, 0), history(), {"oldestBlock": "0x0"}, NO_METHOD, None])
def test_without_a_tip_in_the_history_the_node_proposes_it(empty: Any) -> None:
    assert suggested(HEAD, empty, hex(7 * GWEI)).tip_wei == 7 * GWEI
    assert suggested(HEAD, empty, NO_METHOD).tip_wei == GWEI


def test_without_the_method_the_base_fee_is_that_of_the_head() -> None:
    assert suggested(HEAD, NO_METHOD, hex(5)).max_fee_wei == 6 * GWEI + 5


def test_a_history_that_is_none_is_the_endpoints_failure() -> None:
    with pytest.raises(ChainUnavailableError):
        suggested(HEAD, {"reward": [[]]}, hex(1))


async def test_a_settlement_pays_what_the_median_transaction_of_the_last_blocks_paid(desk: Desk) -> None:
    desk.node.fee_history = history(2 * GWEI, 3 * GWEI, 4 * GWEI)
    relayer, session_id = desk.relayer(), await desk.ended()
    await relayer.work_once(desk.hear)
    (attempt,) = (await desk.record(session_id)).attempts
    assert (attempt.tip_wei, attempt.max_fee_wei) == (3 * GWEI, 11 * GWEI)


async def test_neither_fee_nor_tip_is_above_the_cap(desk: Desk) -> None:
    desk.node.fee_history = history(2 * GWEI, base=10 * GWEI)
    relayer, session_id = desk.relayer(fee_cap_wei=5 * GWEI), await desk.ended()
    await relayer.work_once(desk.hear)
    (attempt,) = (await desk.record(session_id)).attempts
    assert (attempt.tip_wei, attempt.max_fee_wei) == (2 * GWEI, 5 * GWEI)


async def test_a_replacement_may_reach_the_cap_when_twice_the_base_fee_is_above_it(
    desk: Desk, autojump_clock: Any
) -> None:
    relayer, session_id = desk.relayer(depth=0, replace_ms=1_000, fee_cap_wei=5 * GWEI), await desk.ended()
    await relayer.work_once(desk.hear)
    desk.node.base_fee = 4 * GWEI
    await trio.sleep(1.5)
    await relayer.work_once(desk.hear)
    assert [attempt.max_fee_wei for attempt in (await desk.record(session_id)).attempts] == [3 * GWEI, 5 * GWEI]


@pytest.mark.parametrize(
    ("estimate", "limit"),
    [
        (60_000, 300_000),  # the known bound
        (400_000, 500_000),  # a quarter above the estimate
        (12_799_999, GAS_MAX - 2),
        (15_000_000, GAS_MAX),
        (16_000_000, GAS_MAX),
        (None, 300_000),  # the node lacks the method
    ],
)
async def test_the_gas_limit_is_the_known_bound_or_a_quarter_above_the_estimate(
    desk: Desk, estimate: int | None, limit: int
) -> None:
    desk.node.estimate = estimate
    await desk.ended()
    await desk.relayer(estimates_gas=True).work_once(desk.hear)
    assert [transaction.gas for transaction in desk.node.sent] == [limit]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (RefusedCallError("execution reverted: SessionSettlement: paused"), "SessionSettlement: paused"),
        (RefusedCallError("gas required exceeds allowance (50000000)"), "gas required exceeds allowance"),
        (16_000_001, "needs 16000001 gas, and 16000000 is the maximum"),
    ],
)
async def test_a_call_that_reverts_at_its_estimate_is_refused_and_not_sent(
    desk: Desk, answer: Any, reason: str
) -> None:
    desk.node.estimate = answer
    session_id = await desk.ended()
    relayer = desk.relayer(estimates_gas=True)
    await relayer.work_once(desk.hear)
    record = await desk.record(session_id)
    assert desk.node.sent == []
    assert record.state is SettlementState.FAILED
    assert reason in (record.reason or "")
    assert await desk.ledger.next_nonce(desk.key.address) == 0


async def test_a_settlement_that_is_refused_at_its_estimate_leaves_no_gap_in_the_nonces(
    desk: Desk, autojump_clock: Any
) -> None:
    relayer, first = desk.relayer(estimates_gas=True, depth=0, retry_ms_min=1_000), await desk.ended()
    desk.node.estimate = RefusedCallError("execution reverted: paused")
    await relayer.work_once(desk.hear)
    desk.node.estimate = 60_000
    await trio.sleep(3)
    await desk.ended()
    await relayer.work_once(desk.hear)
    assert sorted(transaction.nonce for transaction in desk.node.sent) == [0, 1]
    desk.node.mine()
    await relayer.work_once(desk.hear)
    assert await desk.state(first) is SettlementState.CONFIRMED


async def test_a_replacement_is_sent_although_the_contract_refuses_the_call_now(
    desk: Desk, autojump_clock: Any
) -> None:
    desk.node.estimate = 400_000
    relayer, session_id = desk.relayer(estimates_gas=True, depth=0, replace_ms=1_000), await desk.ended()
    await relayer.work_once(desk.hear)
    desk.node.estimate = RefusedCallError("execution reverted: already settled")
    await trio.sleep(1.5)
    await relayer.work_once(desk.hear)
    assert [(each.nonce, each.gas) for each in desk.node.sent] == [(0, 500_000), (0, 300_000)]
    assert len((await desk.record(session_id)).attempts) == 2
