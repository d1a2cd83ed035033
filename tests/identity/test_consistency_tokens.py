"""Consistency tokens: opaque, signed, bound to one store."""

import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightline.domain.consistency import ConsistencyTokens
from sightline.domain.keyed_hash import keyed_hash

TOKENS = ConsistencyTokens(backend="p1", store_id="store-a", key=b"k" * 32)


@given(st.text())
def test_a_token_gives_back_what_it_carries(payload: str) -> None:
    token = TOKENS.encode(payload)
    if len(token) <= 1024:
        assert TOKENS.decode(token) == payload


@given(st.text())
def test_any_text_is_read_without_an_error(token: str) -> None:
    assert TOKENS.decode(token) is None


@pytest.mark.parametrize(
    "other",
    [
        ConsistencyTokens(backend="z1", store_id="store-a", key=b"k" * 32),
        ConsistencyTokens(backend="p1", store_id="store-b", key=b"k" * 32),
        ConsistencyTokens(backend="p1", store_id="store-a", key=b"j" * 32),
    ],
    ids=["another backend", "another store", "another key"],
)
def test_a_token_of_elsewhere_is_foreign(other: ConsistencyTokens) -> None:
    assert TOKENS.decode(other.encode("7")) is None


def test_every_one_character_change_makes_a_token_foreign() -> None:
    token = TOKENS.encode("123456")
    for at in range(len(token)):
        changed = token[:at] + ("A" if token[at] != "A" else "B") + token[at + 1 :]
        assert TOKENS.decode(changed) is None, at


def test_a_token_of_1024_characters_is_read_and_a_longer_one_is_not() -> None:
    payload = "7" * 100
    while len(TOKENS.encode(payload + "7")) <= 1024:
        payload += "7"
    assert TOKENS.decode(TOKENS.encode(payload)) == payload
    assert len(TOKENS.encode(payload + "7")) in (1025, 1026)
    assert TOKENS.decode(TOKENS.encode(payload + "7")) is None


@given(st.binary(min_size=1, max_size=200), st.binary(max_size=4_000))
def test_the_hash_of_every_call_is_hmac_sha_256(key: bytes, data: bytes) -> None:
    for _ in range(2):  # the second time with the remembered key
        assert keyed_hash(key, data) == hmac.digest(key, data, hashlib.sha256)
