"""The text form of API keys."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightline.domain.access import Environment
from sightline.identity.key_codec import (
    KEY_PATTERN,
    SECRET_BYTES,
    KeyHasher,
    compose_key,
    is_well_formed,
    shown_prefix,
)

WORKSPACE = "9c2d41e7-1111-4111-8111-111111111111"
secrets = st.binary(min_size=SECRET_BYTES, max_size=SECRET_BYTES)


@given(secrets)
def test_a_key_has_the_published_form(secret: bytes) -> None:
    key = compose_key(Environment.TEST, WORKSPACE, secret)
    assert KEY_PATTERN.fullmatch(key)
    assert key.startswith("svc_test_9c2d41_")
    assert is_well_formed(key)


@given(secrets, secrets)
def test_every_one_of_the_256_bits_counts(one: bytes, other: bytes) -> None:
    """Different secrets give different keys, in the order of the secrets: no bit is lost."""
    keys = [compose_key(Environment.TEST, WORKSPACE, secret) for secret in (one, other)]
    assert (keys[0] < keys[1]) == (one < other)
    assert (keys[0] == keys[1]) == (one == other)


def test_the_extremes_are_padded_to_one_length() -> None:
    lowest = compose_key(Environment.TEST, WORKSPACE, bytes(32))
    highest = compose_key(Environment.LIVE, WORKSPACE, b"\xff" * 32)
    assert lowest.endswith("_" + "0" * 43)
    assert len(lowest) == len(highest)
    assert highest.startswith("svc_live_")


@given(st.text())
def test_any_text_can_be_looked_at(text: str) -> None:
    assert not is_well_formed(text)


@pytest.mark.parametrize(
    "change",
    [
        lambda key: key[:-1],
        lambda key: key + "0",
        lambda key: key.upper(),
        lambda key: " " + key,
        lambda key: key + "\n",
        lambda key: key.replace("test", "prod"),
        lambda key: key[:-43] + "z" * 43,
    ],
    ids=["short", "long", "upper case", "space", "newline", "environment", "over 256 bits"],
)
def test_what_is_not_quite_a_key_is_none(change) -> None:
    assert not is_well_formed(change(compose_key(Environment.TEST, WORKSPACE, b"\x07" * 32)))


def test_the_shown_prefix_holds_nothing_of_the_secret() -> None:
    key = compose_key(Environment.TEST, WORKSPACE, b"\xaa" * 32)
    assert shown_prefix(key) == "svc_test_9c2d41"


def test_a_digest_needs_the_pepper() -> None:
    key = compose_key(Environment.TEST, WORKSPACE, b"\xaa" * 32)
    assert KeyHasher(b"a" * 32).digest(key) != KeyHasher(b"b" * 32).digest(key)
    assert KeyHasher(b"a" * 32).digest(key) == KeyHasher(b"a" * 32).digest(key)
    assert len(KeyHasher(b"a" * 32).digest(key)) == 32
    assert "aaaa" not in repr(KeyHasher(b"a" * 32))
