"""Session cookies: encoding, decoding, and every reason to refuse one."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightline.domain.access import Role, WalletPrincipal
from sightline.identity.cookies import LIFETIME_MS, CookieCodec, CookieKey, parse_cookie_keys, session_cookie

NOW = 1_800_000_000_000
ADDRESS = "0x52908400098527886E0F7030069857D2E4169EE7"
WORKSPACE = "9c2d41e7-1111-4111-8111-111111111111"
OLD = CookieKey("k1", b"o" * 32)
NEW = CookieKey("k2", b"n" * 32)


def a_codec(*keys: CookieKey, audience: str = "http://localhost", is_https: bool = False) -> CookieCodec:
    return CookieCodec(keys or (OLD,), audience=audience, is_https=is_https)


def a_session(workspace_id: str | None = None, role: Role | None = None) -> WalletPrincipal:
    return WalletPrincipal(
        session_id="00000000-0000-4000-8000-00000000000a",
        wallet_address=ADDRESS,
        workspace_id=workspace_id,
        role=role,
        signed_in_at_ms=NOW,
        expires_at_ms=NOW + LIFETIME_MS,
    )


@pytest.mark.parametrize("role", [None, *Role])
def test_a_cookie_gives_back_the_session(role: Role | None) -> None:
    session = a_session(WORKSPACE if role else None, role)
    value = a_codec().encode(session)
    assert a_codec().decode(value, now_ms=NOW) == session
    assert len(value) < 400


def test_every_one_character_change_is_refused() -> None:
    value = a_codec().encode(a_session(WORKSPACE, Role.OWNER))
    for at in range(len(value)):
        for other in "Aa0_.=":
            if value[at] != other:
                assert a_codec().decode(value[:at] + other + value[at + 1 :], now_ms=NOW) is None, at


def test_every_truncation_is_refused() -> None:
    value = a_codec().encode(a_session(WORKSPACE, Role.OWNER))
    for length in range(len(value)):
        assert a_codec().decode(value[:length], now_ms=NOW) is None
    assert a_codec().decode(value + "=", now_ms=NOW) is None


@given(st.text())
def test_any_text_is_read_without_an_error(value: str) -> None:
    assert a_codec().decode(value, now_ms=NOW) is None


def test_a_forged_payload_is_refused() -> None:
    version, kid, body, mac = a_codec().encode(a_session()).split(".")
    claims = json.loads(base64.urlsafe_b64decode(body + "=="))
    claims |= {"ws": WORKSPACE, "role": "OWNER"}
    forged = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    assert a_codec().decode(f"{version}.{kid}.{forged}.{mac}", now_ms=NOW) is None
    assert a_codec().decode(f"{version}.{kid}.{forged}.", now_ms=NOW) is None


def test_a_cookie_of_another_key_or_deployment_is_refused() -> None:
    value = a_codec(CookieKey("k1", b"x" * 32)).encode(a_session())
    assert a_codec().decode(value, now_ms=NOW) is None
    elsewhere = a_codec(audience="https://elsewhere.example").encode(a_session())
    assert a_codec().decode(elsewhere, now_ms=NOW) is None


def test_a_session_ends_twelve_hours_after_the_sign_in_to_the_millisecond() -> None:
    value = a_codec().encode(a_session())
    assert a_codec().decode(value, now_ms=NOW + 12 * 3_600_000 - 1) is not None
    assert a_codec().decode(value, now_ms=NOW + 12 * 3_600_000) is None


def test_a_sign_in_of_the_future_is_refused() -> None:
    value = a_codec().encode(a_session())
    assert a_codec().decode(value, now_ms=NOW - 60_000) is not None
    assert a_codec().decode(value, now_ms=NOW - 60_001) is None


def test_keys_rotate_without_signing_anybody_out() -> None:
    before = a_codec(OLD).encode(a_session())
    during = a_codec(NEW, OLD)
    assert during.decode(before, now_ms=NOW) == a_session()
    after = during.encode(a_session())
    assert a_codec(NEW).decode(after, now_ms=NOW) == a_session()
    assert a_codec(NEW).decode(before, now_ms=NOW) is None


def test_the_header_carries_the_promised_attributes() -> None:
    header = a_codec().set_cookie("v", signed_in_at_ms=NOW, now_ms=NOW)
    assert header == "svc_session=v; Path=/; Max-Age=43200; HttpOnly; SameSite=Lax"
    secure = a_codec(is_https=True).set_cookie("v", signed_in_at_ms=NOW, now_ms=NOW + 3_600_000)
    assert secure == "__Host-svc_session=v; Path=/; Max-Age=39600; HttpOnly; SameSite=Lax; Secure"


def test_signing_out_clears_every_name() -> None:
    names = [header.partition("=")[0] for header in a_codec().clear_cookies()]
    assert names == ["svc_session", "lx_session"]
    secure = [header.partition("=")[0] for header in a_codec(is_https=True).clear_cookies()]
    assert secure == ["__Host-svc_session", "svc_session", "lx_session"]
    assert all("Max-Age=0" in header for header in a_codec(is_https=True).clear_cookies())


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (None, None),
        ("", None),
        ("other=1", None),
        ("svc_session=", None),
        ("svc_session", None),
        ("a=b; svc_session=x; c=d", "x"),
        ("lx_session=y", "y"),
        ("lx_session=y; svc_session=x", "x"),
        ("svc_session=x; __Host-svc_session=h", "h"),
        ("svc_session=x; svc_session=z", "x"),
        ('svc_session="x"', "x"),
        ("SVC_SESSION=x", None),
        ("svc_session=a=b", "a=b"),
        ("x" * 20_000 + "; svc_session=x", None),
    ],
)
def test_the_value_is_found_in_the_cookie_header(header: str | None, expected: str | None) -> None:
    assert session_cookie(header) == expected


@given(st.text())
def test_any_cookie_header_is_read_without_an_error(header: str) -> None:
    session_cookie(header)


def test_secrets_do_not_show() -> None:
    assert "oooo" not in repr(OLD)


def test_keys_are_read_from_a_setting_the_signing_one_first() -> None:
    written = ", ".join(f"{key.kid}:{base64.b64encode(key.secret).decode()}" for key in (NEW, OLD))
    assert parse_cookie_keys(written) == (NEW, OLD)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "k1",
        "k1:",
        "k1:c2hvcnQ=",
        "k1:!!!",
        ":" + "QUFB" * 11,
        "a b:" + "QUFB" * 11,
        "k1:" + "QUFB" * 11 + ",k1:" + "QUFB" * 11,
        "k1:" + "QUFB" * 11 + ",",
    ],
)
def test_malformed_keys_are_told_at_the_start(text: str) -> None:
    with pytest.raises(ValueError, match=r"cookie key|base64|padding|character"):
        parse_cookie_keys(text)
