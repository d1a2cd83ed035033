"""Messages for browsers, against the example of RFC 8291, and the signature of VAPID, as a push service checks it."""

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec

from sightline.webhooks.push_encryption import Vapid, encrypt, is_point, key_from, point_of, text_of
from tests.webhooks.push_browser import PushBrowser, bytes_of, claims_of

# RFC 8291, section 5 and appendix A.
PLAINTEXT = b"When I grow up, I want to be a watermelon"
SENDER = "yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw"
SENDER_POINT = "BP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A8"
BROWSER = "q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94"
BROWSER_POINT = "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"
SALT = "DGv6ra1nlYgDCS1FRnbzlw"
AUTH = "BTBZMqHH6r4Tts7J_aSIgg"
BODY = (
    "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A_y"
    "l95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"
)


def the_key(scalar: str) -> ec.EllipticCurvePrivateKey:
    return ec.derive_private_key(int.from_bytes(bytes_of(scalar)), ec.SECP256R1())


def test_a_message_is_encrypted_as_in_the_example_of_rfc_8291() -> None:
    sender = the_key(SENDER)
    assert text_of(point_of(sender.public_key())) == SENDER_POINT
    body = encrypt(
        PLAINTEXT, browser_key=bytes_of(BROWSER_POINT), auth=bytes_of(AUTH), sender=sender, salt=bytes_of(SALT)
    )
    assert text_of(body) == BODY


def test_the_browser_of_the_tests_reads_the_example_of_rfc_8291() -> None:
    browser = PushBrowser(the_key(BROWSER), bytes_of(AUTH))
    assert browser.keys["p256dh"] == BROWSER_POINT
    assert browser.decrypt(bytes_of(BODY)) == PLAINTEXT


def test_a_token_names_the_push_service_and_ends_within_a_day() -> None:
    key = key_from(b"v" * 48)
    vapid = Vapid(key, "mailto:ops@example.com")
    now_ms = 1_760_000_000_000
    header = vapid.authorization("https://push.example.com:8443/secret/path?q=1", now_ms)
    claims = claims_of(header, vapid.public_key)
    assert claims["aud"] == "https://push.example.com:8443"
    assert claims["sub"] == "mailto:ops@example.com"
    assert now_ms // 1_000 < claims["exp"] <= now_ms // 1_000 + 24 * 3_600
    assert "secret" not in header


def test_a_token_of_another_key_is_not_accepted() -> None:
    header = Vapid(key_from(b"a" * 48)).authorization("https://push.example.com/", 0)
    other = Vapid(key_from(b"b" * 48)).public_key
    with pytest.raises((InvalidSignature, AssertionError)):
        claims_of(header, other)


def test_a_point_that_is_not_on_the_curve_is_seen() -> None:
    point = point_of(key_from(b"p" * 48).public_key())
    assert is_point(point)
    assert not is_point(point[:-1] + bytes([point[-1] ^ 1]))
    assert not is_point(point[:-1])
    assert not is_point(b"")
