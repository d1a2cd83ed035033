"""The committed artefacts match the compiled sources, and the constants in the code match the artefacts."""

import json
from pathlib import Path

import pytest
from hexbytes import HexBytes
from web3 import Web3

from contracts.build import ARTEFACTS, NAMES, SOURCES, artefact_text
from sightline.chain.contracts import abi
from sightline.chain.contracts.artefacts import artefact
from sightline.domain.value import replace


@pytest.mark.parametrize("name", NAMES)
def test_an_artefact_is_what_its_source_compiles_to(name: str) -> None:
    assert (ARTEFACTS / f"{name}.json").read_text(encoding="ascii") == artefact_text(name)


@pytest.mark.parametrize("name", NAMES)
def test_a_source_is_ascii(name: str) -> None:
    (SOURCES / f"{name}.vy").read_bytes().decode("ascii")


@pytest.mark.parametrize("name", NAMES)
def test_runtime_code_fits_a_block(name: str) -> None:
    content = json.loads((ARTEFACTS / f"{name}.json").read_text(encoding="ascii"))
    assert len(content["runtimeBytecode"]) // 2 < 24_576


def type_of(item: dict[str, object]) -> str:
    components = item.get("components")
    if isinstance(components, list):
        array = str(item["type"]).removeprefix("tuple")
        return "(" + ",".join(type_of(part) for part in components) + ")" + array
    return str(item["type"])


def signatures(name: str, kind: str) -> set[str]:
    return {
        f"{item['name']}({','.join(type_of(part) for part in item['inputs'])})"
        for item in artefact(name).abi
        if item["type"] == kind
    }


def test_the_selectors_in_use_are_functions_of_the_contracts() -> None:
    token, settlement = signatures("TestUSDC", "function"), signatures("SessionSettlement", "function")
    assert abi.SETTLE_SIGNATURE in settlement
    assert abi.SETTLE_MANY_SIGNATURE in settlement
    asked = {"settled(bytes32)", "TOKEN()", "isRelayer(address)", "MAX_FEE_BPS()", "ADMIN_DELAY()"}
    assert asked | {"limits(address)", "spentOnDay(address,uint256)"} <= settlement
    assert {"balanceOf(address)", "allowance(address,address)", "mint(address,uint256)"} <= token
    authorization = "address,address,uint256,uint256,uint256,bytes32"
    assert {
        f"{way}WithAuthorization({authorization},{signature})"
        for way in ("transfer", "receive")
        for signature in ("bytes", "uint8,bytes32,bytes32")
    } <= token


def test_the_topics_in_use_are_events_of_the_contracts() -> None:
    topics = {abi.topic(event) for event in signatures("TestUSDC", "event")}
    assert {abi.TRANSFER_TOPIC, abi.APPROVAL_TOPIC} <= topics
    settled = {abi.topic(event) for event in signatures("SessionSettlement", "event")}
    assert {abi.SETTLED_TOPIC, abi.LIMITS_SET_TOPIC} <= settled


def test_the_package_reads_its_artefacts_as_resources() -> None:
    assert artefact("TestUSDC").compiler == "vyper 0.4.3"
    assert Path(ARTEFACTS).name == "compiled"


def test_web3_encodes_and_decodes_the_same() -> None:
    """The expected encoding comes from web3's contract objects, which are built from the ABI alone (ADR 0085)."""
    contract = Web3().eth.contract(
        address=Web3.to_checksum_address("0x" + "cc" * 20), abi=artefact("SessionSettlement").abi
    )
    payer, payee = (Web3.to_checksum_address("0x" + byte * 20) for byte in ("a1", "b2"))
    consent = abi.Consent(max_total=7, max_fee_bps=8, deadline_s=9, signature=b"s" * 65)
    call = abi.SettleCall(
        session_id_hash="0x" + "11" * 32, payer=payer, payee=payee, to_amount=51_000, fee_amount=9_000, rate=1_000,
        seconds=60, platform_fee_bps=1_500, consent=consent,
    )  # fmt: skip
    session = bytes.fromhex("11" * 32)
    arguments = [session, payer, payee, 51_000, 9_000, 1_000, 60, 1_500, (7, 8, 9, b"s" * 65)]
    assert "0x" + call.data().hex() == contract.encode_abi("settle", args=arguments)
    free = replace(call, to_amount=0, fee_amount=0, seconds=0)
    assert "0x" + abi.settle_many_data([free]).hex() == contract.encode_abi(
        "settleMany", args=[[(session, payer, payee, 1_000, 1_500)]]
    )
    topics = [abi.SETTLED_TOPIC, "0x" + "11" * 32, abi.address_topic(payer), abi.address_topic(payee)]
    data = b"".join(number.to_bytes(32, "big") for number in (51_000, 9_000, 1_000, 60, 1_500))
    entry = {
        "address": contract.address, "topics": [HexBytes(topic) for topic in topics], "data": HexBytes(data),
        "logIndex": 0, "transactionIndex": 0, "transactionHash": HexBytes(session), "blockHash": HexBytes(session),
        "blockNumber": 1,
    }  # fmt: skip
    judged = contract.events.Settled().process_log(entry)["args"]
    ours = abi.SettledEvent.of(topics, data)
    assert ours.session_id_hash == "0x" + judged["sessionIdHash"].hex()
    assert (ours.payer, ours.payee) == (judged["payer"].lower(), judged["payee"].lower())
    numbers = (ours.to_amount, ours.fee_amount, ours.rate, ours.seconds, ours.platform_fee_bps)
    named = ("toAmount", "feeAmount", "ratePerSecond", "chargeableSeconds", "platformFeeBps")
    assert numbers == tuple(judged[name] for name in named)
