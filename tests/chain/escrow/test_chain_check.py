"""`sightline chain check` on a chain with SessionEscrow."""

from typing import Any

import pytest

from sightline.bootstrap.maintenance.chain_checks import check_chain
from sightline.bootstrap.maintenance.findings import HostFinding, Level
from sightline.config import Settings
from tests.chain.escrow.stage import Stage
from tests.chain.world import clock, ids


async def checked(stage: Stage, **changed: Any) -> list[HostFinding]:
    world = stage.world
    given = {
        "chain_rpc_url": world.endpoint.url, "chain_id": 84_532_001, "chain_usdc_address": world.token,
        "chain_settlement_address": world.settlement, "chain_relayer_key": world.relayer_key.hex(),
        "chain_meter_key": stage.meter_key.hex(), "funds_policy": "escrow",
    }  # fmt: skip
    return [each async for each in check_chain(Settings.model_validate(given | changed), clock, ids)]


async def test_an_escrow_that_works_has_no_failure_and_its_meter_is_named(stage: Stage) -> None:
    findings = await checked(stage)
    assert [each for each in findings if each.level is Level.FAILED] == []
    assert [each.level for each in findings if each.check == "meter"] == [Level.OK]
    assert any("SessionEscrow settles in" in each.detail for each in findings if each.check == "token")


@pytest.mark.parametrize(
    ("changed", "check", "remedy"),
    [
        ({"chain_meter_key": "33" * 32}, "meter", "proposeMeter"),
        ({"funds_policy": "advisory"}, "contracts", "SIGHTLINE_FUNDS_POLICY"),
    ],
)
async def test_a_meter_or_policy_that_does_not_fit_is_failed(
    stage: Stage, changed: dict[str, Any], check: str, remedy: str
) -> None:
    failed = [each for each in await checked(stage, **changed) if each.level is Level.FAILED]
    assert [each.check for each in failed] == [check]
    assert remedy in failed[0].remedy


async def test_one_key_for_relayer_and_meter_is_failed(stage: Stage) -> None:
    findings = await checked(stage, chain_meter_key=stage.world.relayer_key.hex())
    assert ("meter", Level.FAILED) in [(each.check, each.level) for each in findings]
