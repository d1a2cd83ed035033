"""The retry schedule of webhooks, as the guide for customers states it."""

import pytest

from sightline.domain import webhooks
from sightline.domain.webhooks import retry_in_ms

MINUTE_MS, HOUR_MS = 60_000, 3_600_000


def test_a_message_is_tried_ten_times_over_about_three_days():
    waits = [retry_in_ms(step, 0.0, None) for step in range(10)]
    assert waits == [
        5_000, 5 * MINUTE_MS, 30 * MINUTE_MS, 2 * HOUR_MS, 5 * HOUR_MS, 10 * HOUR_MS, 14 * HOUR_MS, 20 * HOUR_MS,
        24 * HOUR_MS, None,
    ]  # fmt: skip


@pytest.mark.parametrize(("jitter", "wait_ms"), [(0.0, 5_000), (0.5, 5_500), (0.999, 5_999)])
def test_a_wait_is_up_to_a_fifth_longer(jitter, wait_ms):
    assert retry_in_ms(0, jitter, None) == wait_ms


@pytest.mark.parametrize(
    ("retry_after_s", "wait_ms"),
    [(0, 5_000), (4, 5_000), (6, 6_000), (86_400, 86_400_000), (86_401, 86_400_000)],
)
def test_a_wait_is_not_shorter_than_the_endpoint_asks_up_to_a_day(retry_after_s, wait_ms):
    assert retry_in_ms(0, 0.0, retry_after_s) == wait_ms


def test_another_schedule_may_be_given():
    assert [retry_in_ms(step, 0.0, None, (1, 2)) for step in range(4)] == [1_000, 2_000, None, None]


def test_the_limits_of_endpoints():
    assert (webhooks.ENDPOINTS_MAX, webhooks.SENT_AT_ONCE_MAX) == (20, 2)
    assert (webhooks.FAILING_MS_MAX, webhooks.ROTATION_MS) == (5 * 24 * HOUR_MS, 24 * HOUR_MS)
