"""The committed artefacts are what the sources compile to, and what the code says of them is true."""

import json
from pathlib import Path

import pytest

from contracts.build import ARTEFACTS, NAMES, SOURCES, artefact_text
from sightline.chain.contracts import abi
from sightline.chain.contracts.artefacts import artefact


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


def test_the_topics_in_use_are_events_of_the_contracts() -> None:
    topics = {abi.topic(event) for event in signatures("TestUSDC", "event")}
    assert {abi.TRANSFER_TOPIC, abi.APPROVAL_TOPIC} <= topics
    settled = {abi.topic(event) for event in signatures("SessionSettlement", "event")}
    assert {abi.SETTLED_TOPIC, abi.LIMITS_SET_TOPIC} <= settled


def test_the_package_reads_its_artefacts_as_resources() -> None:
    assert artefact("TestUSDC").compiler == "vyper 0.4.3"
    assert Path(ARTEFACTS).name == "compiled"
