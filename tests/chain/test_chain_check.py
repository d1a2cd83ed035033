"""`sightline chain check` names each fault of a chain's configuration with its remedy."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import trio

from sightline.bootstrap.maintenance.chain_checks import check_chain, run_chain_check
from sightline.bootstrap.maintenance.findings import HostFinding, Level
from sightline.chain.contracts.abi import call_data, selector
from sightline.chain.costs import CAPTURE_BYTES, GAS_PRICE_ORACLE, OPEN_BYTES, SESSION_GAS
from sightline.chain.service import open_endpoint as open_endpoint_of_service
from sightline.config import Settings
from sightline.domain.units import SECOND_MS
from tests.chain.endpoint import (
    Endpoint,
    Fault,
    Forward,
    Request,
    Response,
    answering,
    honest,
    of_method,
    open_endpoint,
)
from tests.chain.world import World, ids, options_for

CHAIN_ID = 84_532_001
BASE_SEPOLIA = 84_532
GWEI = 10**9
COST_WEI = SESSION_GAS * 3 * GWEI
"""A session's gas at a base fee and a tip of 1 gwei: the maximum fee has twice the base fee."""
WORD = "0x" + "00" * 31


@pytest.fixture
async def second(world: World) -> AsyncIterator[Endpoint]:
    async with open_endpoint(world.node_url) as endpoint:
        yield endpoint


def settings_for(world: World, **changed: Any) -> Settings:
    given = {
        "chain_rpc_url": world.endpoint.url, "chain_id": CHAIN_ID, "chain_usdc_address": world.token,
        "chain_settlement_address": world.settlement, "chain_relayer_key": world.relayer_key.hex(),
    }  # fmt: skip
    return Settings.model_validate(given | changed)


@dataclass
class AtHead:
    """The clock of a machine on which the chain's newest block is so many seconds old."""

    head_s: int
    age_s: int = 1

    def now_ms(self) -> int:
        return (self.head_s + self.age_s) * SECOND_MS


async def checked(world: World, *, age_s: int = 1, **changed: Any) -> list[HostFinding]:
    head = await world.rpc.call("eth_getBlockByNumber", "latest", False)
    at_head = AtHead(int(head["timestamp"], 16), age_s)
    return [finding async for finding in check_chain(settings_for(world, **changed), at_head, ids)]


def faults(findings: list[HostFinding]) -> list[tuple[str, Level]]:
    return [(finding.check, finding.level) for finding in findings if finding.level is not Level.OK]


def lying_call(signature: str, word: str) -> Fault:
    """Answer one question to a contract with this value."""

    async def lied(request: Request, forward: Forward) -> Response | None:
        if request["params"][0]["data"] == "0x" + selector(signature).hex():
            return {"jsonrpc": "2.0", "id": request["id"], "result": word}
        return await forward(request)

    return of_method("eth_call", lied)


def at_tag(tag: str, result: Any) -> Fault:
    """Answer for the block with this tag."""

    async def lied(request: Request, forward: Forward) -> Response | None:
        if request["params"][0] != tag:
            return await forward(request)
        return {"jsonrpc": "2.0", "id": request["id"], **result}

    return of_method("eth_getBlockByNumber", lied)


async def test_a_configuration_that_works_has_no_fault(world: World, second: Endpoint) -> None:
    findings = await checked(world, chain_rpc_url=f"{world.endpoint.url},{second.url}")
    assert faults(findings) == []
    names = ["chain", "head", "finality", "agreement", "depth", "token", "owner", "limits", "relayer", "gas"]
    assert list(dict.fromkeys(finding.check for finding in findings)) == names


@pytest.mark.parametrize(
    ("changed", "check", "remedy"),
    [
        ({"chain_id": 5}, "chain", "SIGHTLINE_CHAIN_ID"),
        ({"chain_rpc_url": "http://127.0.0.1:1"}, "chain", "SIGHTLINE_CHAIN_RPC_URL"),
        ({"chain_usdc_address": "0x" + "1" * 40}, "contracts", "SIGHTLINE_CHAIN_USDC_ADDRESS"),
        ({"chain_settlement_address": "0x" + "1" * 40}, "contracts", "SIGHTLINE_CHAIN_SETTLEMENT_ADDRESS"),
        ({"chain_relayer_key": "11" * 32}, "relayer", "proposeRelayer"),
        ({"chain_relayer_key": "11" * 32}, "gas", "native coin|Send some"),
        ({"chain_relayer_key": "no key"}, "relayer", "SIGHTLINE_CHAIN_RELAYER_KEY"),
        ({"funds_policy": "escrow", "chain_meter_key": "22" * 32}, "contracts", "SIGHTLINE_FUNDS_POLICY"),
    ],
)
async def test_a_wrong_setting_is_failed_with_what_to_do(
    world: World, changed: dict[str, Any], check: str, remedy: str
) -> None:
    findings = await checked(world, **changed)
    found = [finding for finding in findings if finding.check == check and finding.level is Level.FAILED]
    assert found
    assert any(part in found[0].remedy for part in remedy.split("|"))


async def test_contracts_that_were_exchanged_are_failed(world: World) -> None:
    findings = await checked(world, chain_usdc_address=world.settlement, chain_settlement_address=world.token)
    assert ("contracts", Level.FAILED) in faults(findings)


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (lying_call("paused()", WORD + "01"), ("paused", Level.FAILED)),
        (lying_call("decimals()", WORD + "12"), ("token", Level.FAILED)),
        (lying_call("MAX_FEE_BPS()", WORD + "01"), ("limits", Level.FAILED)),
        (lying_call("TOKEN()", WORD + "01"), ("token", Level.FAILED)),
        (of_method("eth_getBalance", answering("0x1")), ("gas", Level.WARNING)),
        (of_method("eth_getBalance", answering("0x0")), ("gas", Level.FAILED)),
        (at_tag("finalized", {"error": {"code": -39001, "message": "unknown block"}}), ("finality", Level.WARNING)),
        (at_tag("latest", {"result": None}), ("chain", Level.FAILED)),
    ],
)
async def test_a_fault_of_chain_or_endpoint_is_named(world: World, fault: Fault, expected: tuple[str, Level]) -> None:
    world.endpoint.fault = fault
    assert expected in faults(await checked(world))


async def test_an_owner_whose_key_is_on_the_server_is_a_warning(world: World) -> None:
    findings = await checked(world, chain_relayer_key=world.treasury_key[2:])
    (owner,) = [finding for finding in findings if finding.check == "owner"]
    assert (owner.level, "the owner is the relayer" in owner.detail) == (Level.WARNING, True)


@pytest.mark.parametrize(("age_s", "level"), [(-60, Level.FAILED), (1, Level.OK), (3_600, Level.WARNING)])
async def test_the_newest_block_is_compared_with_the_clock(world: World, age_s: int, level: Level) -> None:
    findings = await checked(world, age_s=age_s)
    assert [finding.level for finding in findings if finding.check == "head"] == [level]


async def test_one_endpoint_is_a_warning_and_one_that_is_down_is_named(world: World, second: Endpoint) -> None:
    assert ("agreement", Level.WARNING) in faults(await checked(world))
    second.is_down = True
    findings = await checked(world, chain_rpc_url=f"{world.endpoint.url},{second.url}")
    assert ("agreement", Level.FAILED) in faults(findings)
    assert second.url.removeprefix("http://") in next(each for each in findings if each.level is Level.FAILED).detail


async def test_two_endpoints_that_have_another_block_are_failed(world: World, second: Endpoint) -> None:
    async def other(request: Request, forward: Forward) -> Response | None:
        answer = await forward(request)
        answer["result"]["hash"] = "0x" + "ab" * 32
        return answer

    second.fault = of_method("eth_getBlockByNumber", other)
    findings = await checked(world, chain_rpc_url=f"{world.endpoint.url},{second.url}")
    (found,) = [finding for finding in findings if finding.check == "agreement"]
    assert found.level is Level.FAILED
    assert "0x" + "ab" * 32 in found.detail


@pytest.mark.parametrize(("confirmations", "level"), [(None, Level.OK), (5, Level.OK), (2, Level.WARNING)])
async def test_a_depth_below_that_of_the_profile_is_a_warning(
    world: World, confirmations: int | None, level: Level
) -> None:
    world.endpoint.fault = of_method("eth_chainId", answering(hex(BASE_SEPOLIA)))
    findings = await checked(world, chain_id=BASE_SEPOLIA, chain_confirmations=confirmations)
    (depth,) = [finding for finding in findings if finding.check == "depth"]
    assert depth.level is level
    assert "Base Sepolia" in depth.detail


async def test_the_command_exits_with_one_if_a_check_failed_and_prints_no_credential(world: World) -> None:
    def run(**changed: Any) -> tuple[int, str]:
        lines: list[str] = []
        return run_chain_check(settings_for(world, **changed), as_json=True, say=lines.append), "".join(lines)

    code, text = await trio.to_thread.run_sync(run)
    assert code == 0
    assert {finding["level"] for finding in json.loads(text)} <= {"ok", "warning"}
    secret = world.endpoint.url.replace("http://", "http://user:hunter2@") + "/hunter2?key=hunter2"
    code, text = await trio.to_thread.run_sync(partial(run, chain_rpc_url=f"{secret},http://127.0.0.1:1/hunter2"))
    assert code == 1
    assert "hunter2" not in text
    assert world.relayer_key.hex() not in text


async def test_a_known_chain_confirms_at_the_depth_of_its_profile(world: World) -> None:
    world.endpoint.fault = of_method("eth_chainId", answering(hex(BASE_SEPOLIA)))
    async with open_endpoint_of_service(options_for(world, depth=None), ids=ids) as endpoint:
        assert (endpoint.depth, endpoint.chain_name) == (5, "Base Sepolia")
        assert endpoint.sweep_every_ms == 30_000
    async with open_endpoint_of_service(options_for(world, depth=1), ids=ids) as endpoint:
        assert endpoint.depth == 1


async def test_fees_beside_the_gas_lower_the_number_of_sessions(world: World) -> None:
    """As on OP chains: for the data of both transactions, and for the chain's operator."""

    async def oracle(request: Request, forward: Forward) -> Response | None:
        call = request["params"][0]
        fees = {
            (call_data("getL1FeeUpperBound(uint256)", [OPEN_BYTES])): 9 * COST_WEI,
            (call_data("getL1FeeUpperBound(uint256)", [CAPTURE_BYTES])): 6 * COST_WEI,
            (call_data("getOperatorFee(uint256)", [SESSION_GAS])): 4 * COST_WEI,
        }
        fee = fees.get(bytes.fromhex(call["data"][2:])) if call["to"] == GAS_PRICE_ORACLE else None
        answer = answering("0x" + fee.to_bytes(32).hex()) if fee is not None else honest
        return await answer(request, forward)

    async def priced(request: Request, forward: Forward) -> Response | None:
        answers = {
            "eth_feeHistory": {"baseFeePerGas": [hex(GWEI)], "reward": [[hex(GWEI)]]},
            "eth_getBalance": hex(60_000 * COST_WEI),
        }
        if request["method"] == "eth_call":
            return await oracle(request, forward)
        return await (answering(answers[request["method"]]) if request["method"] in answers else honest)(
            request, forward
        )

    world.endpoint.fault = priced
    (gas,) = [finding for finding in await checked(world) if finding.check == "gas"]
    assert "about 3000 sessions; L1 data and operator fees are 95 % of their cost" in gas.detail
    world.endpoint.fault = of_method("eth_getBalance", answering(hex(60_000 * COST_WEI)))
    (gas,) = [finding for finding in await checked(world) if finding.check == "gas"]
    assert "operator" not in gas.detail
