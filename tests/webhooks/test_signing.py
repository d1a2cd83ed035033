"""Signatures hold for the library that customers use, also during a rotation."""

import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from sightline.domain.value import replace
from sightline.domain.webhooks import ROTATION_MS, WebhookEventType
from sightline.ports.webhooks import WebhookEndpoint, WebhookMessage
from sightline.system.clock import SystemClock
from sightline.webhooks.signing import WebhookSigner

ENDPOINT = WebhookEndpoint(
    id="11111111-1111-4111-8111-111111111111",
    workspace_id="22222222-2222-4222-8222-222222222222",
    url="https://example.com/",
    description="",
    event_types=frozenset(),
    created_at_ms=0,
)
MESSAGE = WebhookMessage(
    id="33333333-3333-4333-8333-333333333333",
    workspace_id=ENDPOINT.workspace_id,
    type=WebhookEventType.SESSION_LIVE,
    at_ms=0,
    body='{"type":"session.live","data":{"name":"ünï"}}',
)
SIGNER = WebhookSigner(b"r" * 32)


def test_the_library_of_the_standard_verifies_a_message() -> None:
    headers = SIGNER.headers(ENDPOINT, MESSAGE, SystemClock().now_ms())
    assert Webhook(SIGNER.secret_text(ENDPOINT)).verify(MESSAGE.body, headers)["type"] == "session.live"


def test_a_changed_body_or_another_endpoint_does_not_verify() -> None:
    headers = SIGNER.headers(ENDPOINT, MESSAGE, SystemClock().now_ms())
    other = replace(ENDPOINT, id="44444444-4444-4444-8444-444444444444")
    for secret, body in (
        (SIGNER.secret_text(ENDPOINT), MESSAGE.body + " "),
        (SIGNER.secret_text(other), MESSAGE.body),
        (WebhookSigner(b"s" * 32).secret_text(ENDPOINT), MESSAGE.body),
    ):
        with pytest.raises(WebhookVerificationError):
            Webhook(secret).verify(body, headers)


def test_for_a_day_after_a_rotation_both_secrets_verify_and_then_only_the_new_one() -> None:
    now_ms = SystemClock().now_ms()
    old = SIGNER.secret_text(ENDPOINT)
    for age_ms, is_old_valid in ((0, True), (ROTATION_MS - 1, True), (ROTATION_MS, False)):
        rotated = replace(ENDPOINT, generation=2, rotations_ms=(now_ms - age_ms,))
        headers = SIGNER.headers(rotated, MESSAGE, now_ms)
        assert Webhook(SIGNER.secret_text(rotated)).verify(MESSAGE.body, headers)
        if is_old_valid:
            assert Webhook(old).verify(MESSAGE.body, headers)
        else:
            with pytest.raises(WebhookVerificationError):
                Webhook(old).verify(MESSAGE.body, headers)


def test_a_second_rotation_within_a_day_leaves_the_first_secret_valid_until_its_own_day_is_over() -> None:
    first, now_ms = SIGNER.secret_text(ENDPOINT), SystemClock().now_ms()
    twice = replace(ENDPOINT, generation=3, rotations_ms=(now_ms, now_ms - 1_000))
    headers = SIGNER.headers(twice, MESSAGE, now_ms)
    for secret in (first, SIGNER.secret_text(replace(ENDPOINT, generation=2)), SIGNER.secret_text(twice)):
        assert Webhook(secret).verify(MESSAGE.body, headers)
    later = SIGNER.headers(twice, MESSAGE, now_ms + ROTATION_MS - 1_000)["webhook-signature"].split(" ")
    assert len(later) == 2
