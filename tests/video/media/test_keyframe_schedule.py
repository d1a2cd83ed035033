"""Prediction of a slow poller's next poll, and which polls justify a keyframe request."""

from itertools import pairwise

from sightline.video.media.keyframe_schedule import (
    ASK_AGAIN_MS,
    BACKLOG_MIN,
    HOLD_BACKLOG_MIN,
    KEY_LATE_MS,
    KEY_NEAR_MS,
    KeyframeSchedule,
)

FRAME_MS = 33


def asked_at(
    schedule: KeyframeSchedule,
    polls_ms: list[int],
    *,
    until_ms: int,
    answer_ms: int | None = None,
    own_key_ms: int | None = None,
) -> list[int]:
    """Deliver frames 30 times a second, and return when keyframes were requested.

    Args:
        answer_ms: How long the publisher takes to answer; None if it never does.
        own_key_ms: Interval of keyframes that the publisher sends without a request.
    """
    asked: list[int] = []
    key_due: int | None = None
    polls, backlog = list(polls_ms), 0
    for now_ms in range(0, until_ms, FRAME_MS):
        while polls and polls[0] <= now_ms:
            schedule.polled(polls.pop(0))
            backlog = 0
        own = own_key_ms is not None and now_ms % own_key_ms < FRAME_MS
        if own or (key_due is not None and now_ms >= key_due):
            schedule.key_came(now_ms)
            backlog, key_due = 0, None
        backlog += 1
        if schedule.take_request(now_ms, backlog):
            asked.append(now_ms)
            key_due = now_ms + answer_ms if answer_ms is not None else None
    return asked


def test_a_steady_poll_a_second_has_a_keyframe_asked_for_just_before_each():
    polls = list(range(0, 10_000, 1000))
    asked = asked_at(KeyframeSchedule(key_every_ms=900), polls, until_ms=9_500, answer_ms=66)
    assert len(asked) == 7, "from the third poll on"
    for at_ms, poll_ms in zip(asked, polls[3:], strict=True):
        assert 66 <= poll_ms - at_ms <= 250, "in time for the poll, and no more than some frames before it"


def test_a_publisher_that_answers_slowly_is_asked_earlier():
    polls = list(range(0, 20_000, 1000))
    asked = asked_at(KeyframeSchedule(key_every_ms=900), polls, until_ms=19_500, answer_ms=280)
    assert 280 <= polls[19] - asked[-1] <= 280 + 3 * FRAME_MS


def test_faster_polls_share_a_keyframe_instead_of_asking_for_more():
    asked = asked_at(KeyframeSchedule(key_every_ms=900), list(range(0, 20_000, 400)), until_ms=20_000, answer_ms=66)
    assert asked
    assert min(later - earlier for earlier, later in pairwise(asked)) >= 900


def test_polls_without_a_rhythm_ask_for_nothing():
    polls = [0, 500, 2100, 2900, 4600, 5100, 7000]
    assert asked_at(KeyframeSchedule(key_every_ms=900), polls, until_ms=9_000, answer_ms=66) == []


def test_a_poller_that_stops_is_not_waited_for():
    asked = asked_at(KeyframeSchedule(key_every_ms=900), [0, 1000, 2000], until_ms=30_000, answer_ms=66)
    assert len(asked) == 1, "for the poll that never came"


def test_a_keyframe_that_comes_by_itself_before_the_poll_saves_the_request():
    polls = list(range(150, 10_000, 990))
    assert asked_at(KeyframeSchedule(key_every_ms=900), polls, until_ms=9_500, own_key_ms=990) == []


def test_a_publisher_that_never_answers_is_left_alone_for_a_while():
    polls = list(range(0, 70_000, 1000))
    asked = asked_at(KeyframeSchedule(key_every_ms=900), polls, until_ms=70_000)
    assert len(asked) <= 6
    assert asked[-1] - asked[-2] >= ASK_AGAIN_MS


def test_zero_means_never_to_ask():
    assert asked_at(KeyframeSchedule(key_every_ms=0), list(range(0, 9_000, 1000)), until_ms=9_000) == []


def test_a_short_backlog_is_decoded_without_a_request():
    schedule = KeyframeSchedule(key_every_ms=900)
    for poll_ms in (0, 1000, 2000):
        schedule.polled(poll_ms)
    assert not schedule.take_request(2_900, BACKLOG_MIN - 1)
    assert schedule.take_request(2_900, BACKLOG_MIN)


def after_keys(*at_ms: int) -> KeyframeSchedule:
    schedule = KeyframeSchedule(key_every_ms=900)
    for one_ms in at_ms:
        schedule.key_came(one_ms)
    return schedule


def test_a_poll_shortly_before_a_steady_keyframe_waits_for_it_and_no_longer():
    schedule = after_keys(0, 1000, 2010)
    assert schedule.hold_ms(2_960, 29) == 60 + KEY_LATE_MS
    assert schedule.hold_ms(3_020 - KEY_NEAR_MS - 1, 27) == 0, "too far away to wait for"
    assert schedule.hold_ms(3_020 + KEY_LATE_MS, 30) == 0, "it should have come by now"
    assert schedule.hold_ms(2_960, HOLD_BACKLOG_MIN - 1) == 0, "little to decode"


def test_keyframes_without_a_rhythm_are_not_waited_for():
    assert after_keys(0, 1000, 1400).hold_ms(2_390, 30) == 0
    assert after_keys(0, 1000).hold_ms(1_990, 30) == 0


def test_a_poll_that_comes_before_the_keyframe_asked_for_it_waits_for_that():
    schedule = KeyframeSchedule(key_every_ms=900)
    for poll_ms in (0, 1000, 2000):
        schedule.polled(poll_ms)
    assert schedule.take_request(2_900, 27)
    assert 0 < schedule.hold_ms(2_960, 29) <= KEY_NEAR_MS + KEY_LATE_MS
    schedule.key_came(2_970)
    assert schedule.hold_ms(2_990, 29) == 0
