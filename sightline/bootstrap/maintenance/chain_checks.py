"""Checks of the chain, for `sightline chain check` and `sightline doctor`: endpoints, contracts, keys, depth."""

import json
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Final

import trio
from eth_utils.address import to_checksum_address
from msgspec.structs import asdict

from sightline.bootstrap.failures.errors import StartError
from sightline.bootstrap.maintenance.findings import HostFinding, Level, failed, ok, warning
from sightline.bootstrap.options.core import meter_key, relayer_key
from sightline.chain.contracts.abi import call_data
from sightline.chain.costs import session_cost
from sightline.chain.embedded.copy import FirstStart, open_chain_snapshot
from sightline.chain.embedded.node import CHAIN_ID_DEFAULT
from sightline.chain.gas_key import open_remote_gas_key
from sightline.chain.meter import open_remote_meter
from sightline.chain.profile import profile_of
from sightline.chain.rpc.client import JsonRpc, RpcOptions, RpcResponseError, open_rpc
from sightline.chain.rpc.health import LAG_BLOCKS, names_of, newest_head, urls_in
from sightline.chain.rpc.reader import block_ref, block_time_ms, hex_bytes, hex_int
from sightline.chain.signer import KeyRefusedError, Signer
from sightline.config import Settings
from sightline.domain.errors import ChainUnavailableError
from sightline.domain.settlement import MAIN_NETWORKS
from sightline.domain.units import SECOND_MS, usdc_text
from sightline.ports.clock import Clock
from sightline.ports.ids import Ids
from sightline.system.clock import SystemClock
from sightline.system.data_directory import CHAIN_DATABASE, RESTORE, PartMissingError, check_parts
from sightline.system.ids import SystemIds

OPTIONS: Final = RpcOptions(timeout_ms=5_000, tries=1)
HEAD_AGE_BLOCKS: Final = 10
"""Age of the newest block, in block times, from which an endpoint is behind, or the clock of this machine wrong."""
AHEAD_S_MAX: Final = 15
"""How far a block may be ahead of this machine's clock."""
SESSIONS_LOW: Final = 1_000
"""Number of sessions for which the relayer's native coin should be enough."""
USDC_DECIMALS: Final = 6
KEY_SETTINGS: Final = {
    "relayer": "SIGHTLINE_CHAIN_RELAYER_KEY, _KEYSTORE or _SIGNER_URL",
    "meter": "SIGHTLINE_CHAIN_METER_KEY or _SIGNER_URL",
}
RPC_SETTING: Final = "SIGHTLINE_CHAIN_RPC_URL"


def run_chain_check(settings: Settings, *, as_json: bool, say: Callable[[str], None]) -> int:
    """Print one line for each check of the chain. Returns the exit code: 1 if a check failed, else 0."""

    async def examine() -> list[HostFinding]:
        return [finding async for finding in check_chain(settings, SystemClock(), SystemIds())]

    findings = trio.run(examine)
    print_findings(findings, as_json=as_json, say=say)
    return int(any(finding.level is Level.FAILED for finding in findings))


def print_findings(findings: Sequence[HostFinding], *, as_json: bool, say: Callable[[str], None]) -> None:
    """Print one line for each finding, or all as JSON."""
    if as_json:
        say(json.dumps([asdict(finding) for finding in findings], indent=2))
        return
    for finding in findings:
        # The detail may be the message of an error, which is a sentence.
        said = f"{finding.detail.rstrip('.')}. {finding.remedy}." if finding.remedy else finding.detail
        say(f"{finding.level:<8} {finding.check:<15} {said}")


async def check_chain(settings: Settings, clock: Clock, ids: Ids) -> AsyncIterator[HostFinding]:
    """Check the embedded chain's file; or the external endpoints, the contracts, the keys and the depth."""
    if settings.chain_rpc_url is None:
        for finding in _check_chain_file(settings):
            yield finding
        return
    urls = urls_in(settings.chain_rpc_url.get_secret_value())
    heads: dict[str, int] = {}
    good: list[tuple[str, str]] = []
    for name, url in zip(names_of(urls), urls, strict=True):
        try:
            async with open_rpc(url, OPTIONS, ids) as rpc:
                findings, head = await _check_endpoint(name, rpc, settings, clock)
        except (ChainUnavailableError, OSError, ValueError) as error:
            yield failed("chain", f"{name}: no answer: {error}", f"Correct {RPC_SETTING}, or start the node")
            continue
        for finding in findings:
            yield finding
        if head is not None:
            heads[name] = head
            good.append((name, url))
    if not good:
        return
    for finding in await _check_agreement(good, heads, len(urls), settings, ids):
        yield finding
    yield _check_depth(settings)
    try:
        async with open_rpc(good[0][1], OPTIONS, ids) as rpc:
            for finding in await _check_contracts(rpc, settings, ids):
                yield finding
    except (ChainUnavailableError, OSError, ValueError) as error:
        yield failed("contracts", f"no answer: {error}", f"Correct {RPC_SETTING}")


async def _check_endpoint(
    name: str, rpc: JsonRpc, settings: Settings, clock: Clock
) -> tuple[list[HostFinding], int | None]:
    """Check one endpoint. Returns its head too; None if it serves another chain."""
    chain_id, latest, final = await rpc.batch(
        [
            ("eth_chainId", []),
            ("eth_getBlockByNumber", ["latest", False]),
            ("eth_getBlockByNumber", ["finalized", False]),
        ]
    )
    if isinstance(chain_id, RpcResponseError) or not isinstance(latest, dict):
        refusal = next((each for each in (chain_id, latest) if isinstance(each, RpcResponseError)), "no latest block")
        return [failed("chain", f"{name}: {refusal}", f"Correct {RPC_SETTING}: it must be a JSON-RPC endpoint")], None
    served, head = hex_int(chain_id), block_ref(latest).number
    if served != settings.chain_id:
        detail = f"{name}: the endpoint's chain id is {served}, SIGHTLINE_CHAIN_ID is {settings.chain_id}"
        return [failed("chain", detail, f"Correct SIGHTLINE_CHAIN_ID or {RPC_SETTING}")], None
    findings = [ok("chain", f"{name}: chain {served} answers, block {head}")]
    age_s = (clock.now_ms() - block_time_ms(latest)) / SECOND_MS
    limit_s = HEAD_AGE_BLOCKS * profile_of(served).block_s
    if age_s < -AHEAD_S_MAX:
        detail = f"{name}: the newest block is {-age_s:.0f} s ahead of this machine's clock"
        findings.append(failed("head", detail, "Run NTP on this machine"))
    elif age_s > limit_s:
        detail = f"{name}: the newest block is {age_s:.0f} s old"
        remedy = f"Wait until the node is in step, or replace it in {RPC_SETTING}; a chain that mines on demand is fine"
        findings.append(warning("head", detail, remedy))
    else:
        findings.append(ok("head", f"{name}: the newest block is {max(0.0, age_s):.0f} s old"))
    if isinstance(final, dict):
        findings.append(ok("finality", f"{name}: block {block_ref(final).number} is final"))
    else:
        remedy = "Prefer an endpoint that has it; the configured depth decides in its place"
        findings.append(warning("finality", f"{name}: does not answer for the tag `finalized`", remedy))
    return findings, head


async def _check_agreement(
    good: Sequence[tuple[str, str]], heads: Mapping[str, int], configured: int, settings: Settings, ids: Ids
) -> list[HostFinding]:
    """Compare a block that all endpoints should have."""
    if configured == 1:
        remedy = "Name a second and a third endpoint, so that CONFIRMED needs two that agree"
        return [warning("agreement", "one endpoint: its errors are not seen", remedy)]
    if len(good) == 1:
        return [failed("agreement", "only one endpoint answers: nothing can be CONFIRMED", f"Correct {RPC_SETTING}")]
    newest = newest_head(list(heads.values()))
    findings = [
        warning("lag", f"{name}: {newest - head} blocks behind", "It answers no reads until it has caught up")
        for name, head in heads.items() if newest - head > LAG_BLOCKS
    ]  # fmt: skip
    assert settings.chain_id is not None, "Settings has checked it"
    number = max(0, min(heads.values()) - profile_of(settings.chain_id).depth)
    hashes: dict[str, str] = {}
    for name, url in good:
        try:
            async with open_rpc(url, OPTIONS, ids) as rpc:
                first, block = await rpc.batch([("eth_getBlockByNumber", [hex(each), False]) for each in (0, number)])
        except (ChainUnavailableError, OSError) as error:
            findings.append(failed("agreement", f"{name}: no answer: {error}", f"Correct {RPC_SETTING}"))
            continue
        is_known = isinstance(first, dict) and isinstance(block, dict)
        hashes[name] = f"{first['hash']} {block['hash']}".lower() if is_known else "no block"
    if len(set(hashes.values())) > 1:
        detail = f"block {number} differs: " + ", ".join(f"{name} {each[-66:]}" for name, each in hashes.items())
        remedy = f"Look the block up in an explorer, and remove the wrong endpoint from {RPC_SETTING}"
        findings.append(failed("agreement", detail, remedy))
    else:
        findings.append(ok("agreement", f"{len(hashes)} endpoints have the same block {number}"))
    return findings


def _check_depth(settings: Settings) -> HostFinding:
    assert settings.chain_id is not None, "Settings has checked it"
    profile = profile_of(settings.chain_id)
    depth = profile.depth if settings.chain_confirmations is None else settings.chain_confirmations
    if profile.name is None:
        detail = f"CONFIRMED at {depth} blocks; the chain {settings.chain_id} has no profile"
        return ok("depth", detail)
    if depth < profile.depth:
        detail = f"CONFIRMED at {depth} blocks; the profile of {profile.name} has {profile.depth}"
        return warning("depth", detail, f"Remove SIGHTLINE_CHAIN_CONFIRMATIONS, or set it to {profile.depth}")
    return ok("depth", f"CONFIRMED at {depth} blocks, as the profile of {profile.name} asks")


async def _check_contracts(rpc: JsonRpc, settings: Settings, ids: Ids) -> list[HostFinding]:
    """Check the contracts and their parameters, then the keys."""
    assert settings.chain_usdc_address is not None, "Settings has checked it"
    assert settings.chain_settlement_address is not None, "Settings has checked it"
    token = to_checksum_address(settings.chain_usdc_address)
    contract = to_checksum_address(settings.chain_settlement_address)
    codes = await rpc.batch([("eth_getCode", [address, "latest"]) for address in (token, contract)])
    findings = [
        failed("contracts", f"no contract at the {name} address {address}", f"Correct SIGHTLINE_CHAIN_{name}_ADDRESS")
        for name, address, code in zip(("USDC", "SETTLEMENT"), (token, contract), codes, strict=True)
        if isinstance(code, RpcResponseError) or code in ("0x", "", None)
    ]
    keys = await _keys(settings, contract, ids)
    if isinstance(keys, HostFinding):
        return [*findings, keys]
    relayer, meter = keys
    if not findings:
        findings += await _check_parameters(rpc, settings, token, contract, relayer, meter)
    return [*findings, await _check_gas(rpc, relayer)]


async def _keys(settings: Settings, contract: str, ids: Ids) -> tuple[str, str | None] | HostFinding:
    """Return the addresses of relayer and meter."""
    whose = "relayer"
    try:
        relayer = await _relayer_address(settings, ids)
        whose = "meter"
        meter = await _meter_address(settings, contract, ids) if settings.funds_policy == "escrow" else None
    except ChainUnavailableError as error:
        remedy = f"Start the {whose}'s signer, or correct SIGHTLINE_CHAIN_{whose.upper()}_SIGNER_URL"
        return failed(whose, str(error), remedy)
    except (KeyRefusedError, StartError, ValueError) as error:
        return failed(whose, str(error), f"Correct {KEY_SETTINGS[whose]}")
    if relayer == meter:
        return failed("meter", "the meter's key is the relayer's", "Give the meter a key of its own")
    return relayer, meter


async def _relayer_address(settings: Settings, ids: Ids) -> str:
    url, key = settings.chain_relayer_signer_url, relayer_key(settings)
    if key is not None:
        return Signer(key).address
    assert url is not None, "Settings has checked it"
    async with open_remote_gas_key(url, timeout_ms=OPTIONS.timeout_ms, ids=ids) as gas_key:
        return gas_key.address


async def _meter_address(settings: Settings, contract: str, ids: Ids) -> str:
    url, key = settings.chain_meter_signer_url, meter_key(settings)
    if key is not None:
        return Signer(key).address
    assert url is not None, "Settings has checked it"
    assert settings.chain_id is not None, "Settings has checked it"
    async with open_remote_meter(
        url, chain_id=settings.chain_id, contract=contract, timeout_ms=OPTIONS.timeout_ms, ids=ids
    ) as meter:
        return meter.address


async def _check_parameters(
    rpc: JsonRpc, settings: Settings, token: str, contract: str, relayer: str, meter: str | None
) -> list[HostFinding]:
    """Compare what the contract says with the settings."""
    name = "SessionSettlement" if meter is None else "SessionEscrow"
    allowed = ("isRelayer(address)", relayer) if meter is None else ("isMeter(address)", meter)
    questions: list[tuple[str, bytes]] = [
        (contract, call_data(question))
        for question in ("TOKEN()", "FEE_RECEIVER()", "MAX_FEE_BPS()", "SESSION_CAP()", "owner()", "paused()")
    ]
    questions += [(contract, call_data(allowed[0], [allowed[1]])), (token, call_data("decimals()"))]
    answers = await rpc.batch(
        [("eth_call", [{"to": to, "data": "0x" + data.hex()}, "latest"]) for to, data in questions]
    )
    if any(isinstance(each, RpcResponseError) or len(hex_bytes(each)) < 32 for each in answers[:-1]):
        remedy = (
            "Correct SIGHTLINE_CHAIN_SETTLEMENT_ADDRESS, or SIGHTLINE_FUNDS_POLICY: escrow needs SessionEscrow, the "
            "others SessionSettlement"
        )
        return [failed("contracts", f"the contract at {contract} is not a {name}", remedy)]
    words = [hex_bytes(each) for each in answers[:-1]]
    settles_in, fee_receiver, owner = (to_checksum_address(words[place][-20:]) for place in (0, 1, 4))
    fee_bps, cap, is_paused, is_allowed = (int.from_bytes(words[place], "big") for place in (2, 3, 5, 6))
    findings: list[HostFinding] = []
    if settles_in != token:
        detail = f"{name} settles in {settles_in}, SIGHTLINE_CHAIN_USDC_ADDRESS is {token}"
        findings.append(failed("token", detail, "Correct SIGHTLINE_CHAIN_USDC_ADDRESS"))
    elif isinstance(answers[-1], RpcResponseError) or hex_int(answers[-1]) != USDC_DECIMALS:
        findings.append(failed("token", f"{token} does not have {USDC_DECIMALS} decimals", "Use a USDC"))
    else:
        findings.append(ok("token", f"{name} settles in {token}"))
    findings.append(_judge_parties(fee_receiver, owner, relayer, meter))
    if settings.platform_fee_bps > fee_bps:
        detail = f"the platform's fee is {settings.platform_fee_bps} bps, the contract's maximum {fee_bps}"
        findings.append(failed("limits", detail, f"Lower SIGHTLINE_PLATFORM_FEE_BPS to {fee_bps}"))
    else:
        findings.append(ok("limits", f"fee at most {fee_bps} bps, a session at most {usdc_text(cap)} USDC"))
    if is_paused:
        findings.append(failed("paused", f"the owner {owner} has paused the contract", "Call setPaused(false)"))
    role, address = ("relayer", relayer) if meter is None else ("meter", meter)
    if is_allowed:
        findings.append(ok(role, f"{address} is allowed by the contract"))
    else:
        remedy = f"The owner calls propose{role.title()} and, after the delay, allow{role.title()} with its address"
        findings.append(failed(role, f"{address} is not allowed by the contract", remedy))
    return findings


def _judge_parties(fee_receiver: str, owner: str, relayer: str, meter: str | None) -> HostFinding:
    detail = f"owner {owner}, fee receiver {fee_receiver}"
    hot = {relayer: "the relayer", meter: "the meter"}
    if owner in hot:
        remedy = "Transfer the ownership to a key that is not on the server"
        return warning("owner", f"{detail}: the owner is {hot[owner]}", remedy)
    if fee_receiver in hot:
        remedy = "Deploy the contract with another fee receiver: a thief of the server's key takes the fees"
        return warning("owner", f"{detail}: the fee receiver is {hot[fee_receiver]}", remedy)
    return ok("owner", detail)


async def _check_gas(rpc: JsonRpc, relayer: str) -> HostFinding:
    """Compare the relayer's native coin with the present price of sessions."""
    (balance,) = await rpc.batch([("eth_getBalance", [relayer, "latest"])])
    if isinstance(balance, RpcResponseError) or hex_int(balance) == 0:
        return failed("gas", f"{relayer} has no native coin", "Send some to it: settlements cannot be sent")
    cost = await session_cost(rpc)
    sessions = hex_int(balance) // cost.total_wei
    detail = f"the relayer {relayer} has native coin for about {sessions} sessions"
    if cost.beside_gas_wei:
        detail += f"; L1 data and operator fees are {100 * cost.beside_gas_wei // cost.total_wei} % of their cost"
    if sessions < SESSIONS_LOW:
        return warning("gas", detail, "Send some to it")
    return ok("gas", detail)


def settings_of_chain(settings: Settings) -> dict[str, str]:
    """Return the settings, by variable, that a start on the embedded chain's file needs and does not have now.

    Raises:
        OSError, sqlite3.Error: There is no file, or it cannot be read.
    """
    with open_chain_snapshot(settings.data_dir.resolve() / "chain" / "chain.sqlite") as chain:
        return _differing(settings, chain.first_start())


def _differing(settings: Settings, fixed: FirstStart | None) -> dict[str, str]:
    if fixed is None:
        return {}
    wanted: dict[str, str] = {}
    if fixed.chain_id != (settings.chain_id or CHAIN_ID_DEFAULT):
        wanted["SIGHTLINE_CHAIN_ID"] = str(fixed.chain_id)
    if fixed.is_escrow is not None and fixed.is_escrow != (settings.funds_policy == "escrow"):
        wanted["SIGHTLINE_FUNDS_POLICY"] = "escrow" if fixed.is_escrow else "advisory"
    return wanted


def _check_chain_file(settings: Settings) -> Iterator[HostFinding]:
    path = settings.data_dir.resolve() / "chain" / "chain.sqlite"
    try:
        is_there = path.exists()
    except PermissionError:
        yield failed("chain", f"{path} cannot be read", "Run this as the account of the server")
        return
    if not is_there:
        try:
            check_parts(settings.data_dir.resolve(), (CHAIN_DATABASE,))
        except (PartMissingError, OSError):
            yield failed("chain", f"{path} is missing", f"To get it back, {RESTORE}")
        else:
            yield ok("chain", "embedded; the first start creates it")
        return
    try:
        with open_chain_snapshot(path) as chain:
            head, wanted, problem = chain.head, _differing(settings, chain.first_start()), chain.problem()
    except (OSError, sqlite3.Error) as error:
        yield failed("chain", f"{path}: {error}", f"To get it back, {RESTORE}")
        return
    if problem is not None:
        yield failed("chain", f"{path} is damaged: {problem}", f"To get it back, {RESTORE}")
        return
    yield ok("chain", f"embedded; block {head}")
    if int(wanted.get("SIGHTLINE_CHAIN_ID", 0)) in MAIN_NETWORKS:
        detail = f"a start is refused: the embedded chain has the id of a main network, {wanted['SIGHTLINE_CHAIN_ID']}"
        yield failed("chain", detail, "Use a new data directory")
        return
    for variable, value in wanted.items():
        or_that = ", or enforced if that was set" if value == "advisory" else ""
        detail = f"a start is refused: the embedded chain keeps the terms of its first start, {variable}={value}"
        yield failed("chain", detail, f"Set {variable}={value}{or_that}")
