"""Receipts are verified by recomputation: true ones pass, and every forged value is found at its line."""

import re
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sightline.system.keccak import keccak256
from sightline_client.verification import (
    ReceiptCheck,
    SkipReason,
    TrustedDeployment,
    Verification,
    chain_hash,
    verify_events,
    verify_receipt,
)
from tests.http.money import builder
from tests.http.money.builder import (
    Json,
    by_other_contracts,
    cancelled,
    extended,
    forged,
    leaves,
    line_of,
    mismatched,
    on_chain,
    pending,
    reopened,
    settled,
    short,
    told,
    unextended,
    unproved,
    value_at,
)

VECTORS = Path(__file__).parents[3] / "docs" / "vectors" / "receipts.json"
TRUE = settled().receipt()
CHAIN = on_chain(TRUE)
CONTRACTS = TRUE["contracts"]
TRUSTED = TrustedDeployment(CONTRACTS["chainId"], CONTRACTS["settlementAddress"], CONTRACTS["usdcAddress"])


def verified(receipt: Json, chain: object = CHAIN, deployment: TrustedDeployment | None = TRUSTED) -> Verification:
    return verify_receipt(receipt, keccak256=keccak256, deployment=deployment, chain=chain)


def vectors() -> Json:
    """The vectors that all verifiers share. Each forged one is the first receipt with another value at a path."""
    pause = next(index for index, event in enumerate(TRUE["events"]) if event["kind"] == "PAUSED")
    end = next(index for index, event in enumerate(TRUE["events"]) if event["kind"] == "ENDED")
    facts = {fact["name"]: place for place, fact in enumerate(TRUE["events"][end]["facts"])}
    elsewhere, other = by_other_contracts(TRUE), mismatched()
    receipts: list[tuple[str, Json, TrustedDeployment | None, object]] = [
        ("settled on the chain", TRUE, TRUSTED, CHAIN),
        ("settled, and the caller names no deployment", TRUE, None, CHAIN),
        ("settled, without a transaction from a node", TRUE, TRUSTED, None),
        ("ended without proof, not settled yet", pending().receipt(), TRUSTED, None),
        ("cancelled before it was LIVE", cancelled().receipt(), TRUSTED, None),
        ("opened again since its operator did not start, then cancelled", reopened().receipt(), TRUSTED, None),
        ("half a second of proof, charged the minimum of one second", short(1).receipt(), TRUSTED, None),
        ("half a second of proof, charged the duration rounded up", short(10).receipt(), TRUSTED, None),
        ("half a second of proof, created before there was a minimum", short(0).receipt(), TRUSTED, None),
        ("a minimum of one second, charged without a proof", unproved(), TRUSTED, None),
        ("extended twice", extended().receipt(), TRUSTED, None),
        ("a view with messages in several scripts", told().receipt(), TRUSTED, None),
        ("an extension by more seconds than it says", unextended(), TRUSTED, None),
        ("settled by contracts of a stranger, as the receipt says", elsewhere, TRUSTED, on_chain(elsewhere)),
        ("settled by contracts of a stranger, with the trusted addresses", TRUE, TRUSTED, on_chain(elsewhere)),
        ("paid in the token of a stranger", TRUE, TRUSTED, on_chain(TRUE, token=elsewhere["contracts"]["usdcAddress"])),
        ("paid into the payee's credit at the contract", TRUE, TRUSTED, on_chain(TRUE, is_credited=True)),
        ("read from a node of another chain", TRUE, TRUSTED, CHAIN | {"chainId": 1}),
        ("a settlement that is MISMATCHED", other, TRUSTED, on_chain(other)),
    ]
    changes: list[tuple[str, tuple[str | int, ...], object]] = [
        ("a pause moved", ("events", pause, "atMs"), TRUE["events"][pause]["atMs"] + 1_000),
        ("a hash replaced", ("events", pause, "hash"), "00" * 32),
        ("the windows of the end replaced", ("events", end, "facts", facts["windows"], "value"), ""),
        ("the events of another session", ("session", "id"), "0a000000-0000-4000-8000-000000000009"),
        ("one more clean second", ("session", "cleanSeconds"), TRUE["session"]["cleanSeconds"] + 1),
        ("a window left out", ("meter", "windows"), TRUE["meter"]["windows"][1:]),
        ("a higher rate", ("session", "ratePerSecondMicroUsdc"), "1001"),
        ("a higher fee", ("settlement", "payload", "feeAmount"), "999999"),
        ("another payee", ("settlement", "payload", "to"), builder.PAYER),
        ("another transaction", ("settlement", "txHash"), "0x" + "11" * 32),
        ("MISMATCHED although it is not", ("settlement", "mismatched"), True),
        ("another log", ("settlement", "logIndex"), builder.LOG_INDEX + 1),
        ("another contract", ("contracts", "settlementAddress"), builder.PAYER),
        ("another token", ("contracts", "usdcAddress"), builder.PAYER),
        ("another chain", ("contracts", "chainId"), 1),
        ("an event without its facts", ("events", end, "facts"), None),
    ]
    return {
        "receipts": [
            {
                "name": name,
                "receipt": receipt,
                "deployment": None if deployment is None else CONTRACTS,
                "chain": chain,
                **_result(verified(receipt, chain, deployment)),
            }
            for name, receipt, deployment, chain in receipts
        ],
        "forged": [
            {"name": name, "path": list(path), "value": value, **_result(verified(forged(TRUE, path, value)))}
            for name, path, value in changes
        ],
    }


def _result(found: Verification) -> Json:
    failures = [{"check": each.check.value, "line": each.line} for each in found.failures]
    return {"failures": failures, "skipped": {str(check): str(reason) for check, reason in found.skipped.items()}}


def test_the_committed_vectors_are_what_the_verifier_says() -> None:
    """To accept a change, write `orjson.dumps(vectors(), option=OPT_INDENT_2)` to docs/vectors/receipts.json."""
    assert orjson.loads(VECTORS.read_bytes()) == vectors()


def test_true_receipts_pass() -> None:
    assert verified(TRUE) == Verification(())
    for story in (pending(), cancelled()):
        assert verified(story.receipt(), None) == Verification((), {ReceiptCheck.SETTLED: SkipReason.NOT_SETTLED})
    assert int(TRUE["session"]["chargedMicroUsdc"]) > 0
    assert len(TRUE["meter"]["windows"]) >= 2


def test_the_shortest_charge_is_recomputed_from_the_terms_in_the_first_event() -> None:
    receipts = [short(minimum_s).receipt() for minimum_s in (0, 1, 10)]
    assert [receipt["session"]["cleanSeconds"] for receipt in receipts] == [0, 1, 2]
    assert all(verified(receipt, None).is_valid for receipt in receipts)
    assert {failure.line for failure in verified(unproved(), None).failures} == {
        "events[3]",
        "session.cleanSeconds",
        "meter.cleanSeconds",
    }


def test_the_terms_of_an_extended_session_are_those_of_its_last_extension() -> None:
    receipt = extended().receipt()
    assert (receipt["session"]["maxDurationSeconds"], receipt["session"]["cleanSeconds"]) == (90, 80)
    assert verified(receipt, None).is_valid
    assert [failure.check for failure in verified(unextended(), None).failures] == [ReceiptCheck.HASH_CHAIN]
    stretched = forged(receipt, ("session", "maxDurationSeconds"), 120)
    assert "session.maxDurationSeconds" in {failure.line for failure in verified(stretched, None).failures}


def test_a_payment_that_was_not_looked_up_is_never_said_to_be_verified() -> None:
    settled_check = ReceiptCheck.SETTLED
    assert verified(TRUE, CHAIN, None) == Verification((), {settled_check: SkipReason.DEPLOYMENT_MISSING})
    assert verified(TRUE, None) == Verification((), {settled_check: SkipReason.TRANSACTION_MISSING})
    assert verified(TRUE, None, None) == Verification((), {settled_check: SkipReason.DEPLOYMENT_MISSING})


def test_a_receipt_that_a_strangers_contract_emitted_is_refused_by_whoever_names_the_deployment() -> None:
    elsewhere = by_other_contracts(TRUE)
    found = verified(elsewhere, on_chain(elsewhere))
    lines = [(each.check, each.line) for each in found.failures]
    assert lines[:2] == [
        (ReceiptCheck.SETTLED, "contracts.settlementAddress"),
        (ReceiptCheck.SETTLED, "contracts.usdcAddress"),
    ]
    assert [each.line for each in verified(elsewhere, None).failures] == [line for _, line in lines[:2]]
    assert "by the contract " + TRUSTED.settlement_address.lower() in found.failures[2].message
    honest = verified(TRUE, on_chain(elsewhere))
    assert [each.line for each in honest.failures] == ["settlement.txHash"]


def test_a_mismatched_settlement_is_one_failure_that_says_what_the_chain_paid() -> None:
    receipt = mismatched()
    (failure,) = verified(receipt, on_chain(receipt)).failures
    assert failure.line == "settlement.mismatched"
    assert failure.message == (
        f"is true: the contract settled 7000 micro-USDC for 7 s from {builder.PAYER} to {builder.OTHER_PAYEE}, "
        "but the recorded events give 22000 micro-USDC for 22 s"
    )
    wrong = forged(receipt, ("settlement", "payload", "chargeableSeconds"), 8)
    assert {"settlement.payload", "settlement.payload.chargeableSeconds"} <= {
        each.line for each in verified(wrong, on_chain(receipt)).failures
    }


def test_every_forged_vector_names_the_forged_line() -> None:
    committed = orjson.loads(VECTORS.read_bytes())
    assert [vector["name"] for vector in committed["receipts"] if vector["failures"]] == [
        "a minimum of one second, charged without a proof",
        "an extension by more seconds than it says",
        "settled by contracts of a stranger, as the receipt says",
        "settled by contracts of a stranger, with the trusted addresses",
        "paid in the token of a stranger",
        "read from a node of another chain",
        "a settlement that is MISMATCHED",
    ]
    for vector in committed["forged"]:
        line = line_of(vector["path"])
        assert any(line.startswith(failure["line"]) for failure in vector["failures"]), vector["name"]


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_every_forged_value_is_found_at_its_line(data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(leaves(TRUE)))
    original = value_at(TRUE, path)
    value = data.draw(_other_than(original))
    found = verified(forged(TRUE, path, value))
    line = line_of(path)
    event = re.match(r"events\[\d+\]", line)
    named = {failure.line for failure in found.failures}
    assert any(line.startswith(each) or (event and each.startswith(event[0])) for each in named), (
        line,
        original,
        value,
        found,
    )


def _other_than(original: object) -> st.SearchStrategy[Any]:
    anything = st.one_of(st.none(), st.integers(0, 2**63), st.text(max_size=20), st.booleans(), st.lists(st.integers()))
    like: st.SearchStrategy[Any] = anything
    if isinstance(original, str):
        place = st.integers(0, max(0, len(original) - 1))
        like = place.map(lambda at: original[:at] + ("1" if original[at : at + 1] != "1" else "2") + original[at + 1 :])
    elif isinstance(original, int | float):
        like = st.integers(1, 10**6).map(lambda by: original + by)
    return st.one_of(like, anything).filter(lambda value: type(value) is not type(original) or value != original)


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_a_missing_value_or_event_is_found(data: st.DataObject) -> None:
    named = [leaf for leaf in leaves(TRUE) if isinstance(leaf[-1], str) and leaf[-1] != "mismatched"]
    path = data.draw(st.sampled_from(named))
    other = forged(TRUE, path, None)
    del value_at(other, path[:-1])[path[-1]]
    assert not verified(other).is_valid, path
    without = forged(TRUE, ("events",), list(TRUE["events"]))
    del without["events"][data.draw(st.integers(0, len(TRUE["events"]) - 1))]
    assert not verified(without).is_valid


@settings(max_examples=200, deadline=None)
@given(receipt=st.recursive(st.none() | st.integers() | st.text(), lambda inner: st.dictionaries(
    st.sampled_from(["session", "meter", "events", "settlement", "contracts", "id", "txHash"]), inner
) | st.lists(inner)))  # fmt: skip
def test_anything_else_is_refused_and_never_raises(receipt: object) -> None:
    assert not verify_receipt(receipt, keccak256=keccak256, deployment=TRUSTED, chain=CHAIN).is_valid


def test_events_are_verified_against_a_head_hash_that_was_seen_earlier() -> None:
    session_id, events = TRUE["session"]["id"], TRUE["events"]
    assert verify_events(session_id, events, TRUE["meter"]["headHash"]).is_valid
    ended = next(index for index, event in enumerate(events) if event["kind"] == "ENDED")
    assert verify_events(session_id, events[: ended + 1], TRUE["meter"]["endedHeadHash"]).is_valid
    assert not verify_events(session_id, events[:-1], TRUE["meter"]["headHash"]).is_valid


LOWEST, HIGHEST = "0x" + "00" * 31 + "01", "0x" + "ff" * 32


@pytest.mark.parametrize("position", [0, 3])
@pytest.mark.parametrize(
    ("log", "changes"),
    [
        *((0, {"address": other, "topics": {1: word}}) for word in (LOWEST, HIGHEST) for other in ("0x" + "e1" * 20,)),
        *((0, {"address": "0x" + "e1" * 20, "topics": {0: word}}) for word in (LOWEST, HIGHEST)),
        (0, {"address": "0x" + "e1" * 20, "data": "0x" + "00" * 31 + "01"}),
        (0, {"address": "0x" + "e1" * 20, "data": HIGHEST}),
        (0, {"address": "0x" + "e1" * 20, "data": "0x"}),
        (0, {"address": "0x" + "e1" * 20, "topics": None}),
        *((2, {"topics": {place: word}, "data": "0x"}) for place in (0, 1) for word in (LOWEST, HIGHEST)),
        (2, {"topics": None, "data": "0x"}),
    ],
)
def test_other_logs_of_the_transaction_say_nothing_about_the_settlement(
    position: int, log: int, changes: dict[str, Any]
) -> None:
    chain: Any = orjson.loads(orjson.dumps(CHAIN))
    logs = chain["receipt"]["logs"]
    other = orjson.loads(orjson.dumps(logs[log])) | {key: each for key, each in changes.items() if key != "topics"}
    if changes.get("topics", {}) is None:
        other["topics"] = []
    for place, word in (changes.get("topics") or {}).items():
        other["topics"][place] = word
    logs.insert(position, other)
    assert verified(TRUE, chain) == Verification(())
    if log == 0:
        forged_token = forged(TRUE, ("contracts", "usdcAddress"), other["address"])
        assert [each.line for each in verified(forged_token, chain).failures] == ["contracts.usdcAddress"]


def test_the_events_of_another_session_are_one_failure_however_many_they_are() -> None:
    story, events, previous = "0a000000-0000-4000-8000-000000000001", list[Json](), ""
    for sequence in range(1, 301):
        previous = chain_hash(previous, story, sequence, "PAUSED", sequence, [])
        events.append({"sequence": sequence, "kind": "PAUSED", "atMs": sequence, "facts": [], "hash": previous})
    assert verify_events(story, events, previous).is_valid
    other = verify_events(story.replace("1", "2"), events, previous)
    assert [(failure.line, failure.message) for failure in other.failures] == [
        ("sessionId", "is not the session of these events")
    ]
    wrong = [*events[:4], events[4] | {"atMs": 0}, *events[5:7], events[7] | {"kind": "RESUMED"}, *events[8:]]
    assert [failure.line for failure in verify_events(story, wrong, previous).failures] == ["events[4]", "events[7]"]
