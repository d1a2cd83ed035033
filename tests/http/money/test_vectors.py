"""Receipts are verified by recomputation: true ones pass, and every forged value is found at its line."""

import re
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sightline.domain.receipt import ReceiptCheck, Verification, chain_hash, verify_events, verify_receipt
from sightline.system.keccak import keccak256
from tests.http.money import builder
from tests.http.money.builder import (
    Json,
    cancelled,
    forged,
    leaves,
    line_of,
    on_chain,
    pending,
    reopened,
    settled,
    value_at,
)

VECTORS = Path(__file__).parents[3] / "docs" / "vectors" / "receipts.json"
TRUE = settled().receipt()
CHAIN = on_chain(TRUE)


def verified(receipt: Json, chain: object = CHAIN) -> Verification:
    return verify_receipt(receipt, keccak256=keccak256, chain=chain)


def vectors() -> Json:
    """The vectors that all verifiers share. Each forged one is the first receipt with another value at a path."""
    pause = next(index for index, event in enumerate(TRUE["events"]) if event["kind"] == "PAUSED")
    end = next(index for index, event in enumerate(TRUE["events"]) if event["kind"] == "ENDED")
    facts = {fact["name"]: place for place, fact in enumerate(TRUE["events"][end]["facts"])}
    receipts: list[tuple[str, Json, object]] = [
        ("settled on the chain", TRUE, CHAIN),
        ("settled, without chain data", TRUE, None),
        ("ended without proof, not settled yet", pending().receipt(), None),
        ("cancelled before it was LIVE", cancelled().receipt(), None),
        ("opened again since its operator did not start, then cancelled", reopened().receipt(), None),
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
        ("another log", ("settlement", "logIndex"), builder.LOG_INDEX + 1),
        ("another contract", ("contracts", "settlementAddress"), builder.PAYER),
        ("another chain", ("contracts", "chainId"), 1),
        ("an event without its facts", ("events", end, "facts"), None),
    ]
    return {
        "receipts": [
            {"name": name, "receipt": receipt, "chain": chain, **_result(verified(receipt, chain))}
            for name, receipt, chain in receipts
        ],
        "forged": [
            {"name": name, "path": list(path), "value": value, **_result(verified(forged(TRUE, path, value)))}
            for name, path, value in changes
        ],
    }


def _result(found: Verification) -> Json:
    failures = [{"check": each.check.value, "line": each.line} for each in found.failures]
    return {"failures": failures, "skipped": sorted(check.value for check in found.skipped)}


def test_the_committed_vectors_are_what_the_verifier_says() -> None:
    """To accept a change, write `orjson.dumps(vectors(), option=OPT_INDENT_2)` to docs/vectors/receipts.json."""
    assert orjson.loads(VECTORS.read_bytes()) == vectors()


def test_true_receipts_pass() -> None:
    assert verified(TRUE) == Verification(())
    assert verified(TRUE, None) == Verification((), frozenset({ReceiptCheck.SETTLED}))
    for story in (pending(), cancelled()):
        assert verified(story.receipt(), None).failures == ()
    assert int(TRUE["session"]["chargedMicroUsdc"]) > 0
    assert len(TRUE["meter"]["windows"]) >= 2


def test_every_forged_vector_names_the_forged_line() -> None:
    committed = orjson.loads(VECTORS.read_bytes())
    assert [vector["failures"] for vector in committed["receipts"]] == [[]] * 5
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
    path = data.draw(st.sampled_from([leaf for leaf in leaves(TRUE) if isinstance(leaf[-1], str)]))
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
    assert not verify_receipt(receipt, keccak256=keccak256, chain=CHAIN).is_valid


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
