"""Predicts polls and keyframes, and requests keyframes just before slow polls.

A poll decodes every frame since the newest keyframe, so the position of keyframes decides its cost. Encoders of
browsers and phones send one when asked and rarely otherwise: requested at the right time, a poll decodes a few frames
instead of thirty. The cost is one larger frame per poll. An encoder with a fixed interval ignores requests; there a
poll at the end of a group waits for the keyframe, which takes little longer than decoding the group.
"""

from typing import Final, final

STEADY_MS: Final = 80
"""Polls or keyframes are steady if two successive intervals differ by less than this."""
BACKLOG_MIN: Final = 8
"""Below this number of frames decoding costs less than a keyframe and its traffic."""
SLACK_MS: Final = 60
"""Two frames at 30 a second: requests are sent when a frame arrives, and polls may be early."""
ANSWER_FIRST_MS: Final = 100.0
ANSWER_MAX_MS: Final = 400
"""A keyframe later than this is not counted as an answer."""
HOLD_BACKLOG_MIN: Final = 15
KEY_NEAR_MS: Final = 90
"""A poll waits for a keyframe that is due within this time: decoding a second of 720p takes 40 ms."""
KEY_LATE_MS: Final = 30
UNANSWERED_MAX: Final = 3
ASK_AGAIN_MS: Final = 30_000
"""Pause after UNANSWERED_MAX requests without an answer."""


@final
class KeyframeSchedule:
    """Predicts the polls and keyframes of one input. Pure; time is an argument.

    Args:
        key_every_ms: Minimum interval of requests; 0 means none.
    """

    def __init__(self, *, key_every_ms: int) -> None:
        self._key_every_ms = key_every_ms
        self._polled_ms: int | None = None
        self._gap_ms: int | None = None
        self._due_ms: int | None = None
        self._key_ms: int | None = None
        self._key_gap_ms: int | None = None
        self._next_key_ms: int | None = None
        self._asked_ms = -ASK_AGAIN_MS
        self._waiting = False
        self._unanswered = 0
        self._answer_ms = ANSWER_FIRST_MS

    def polled(self, now_ms: int) -> None:
        """Note a poll."""
        gap_ms = now_ms - self._polled_ms if self._polled_ms is not None else None
        self._due_ms = _next(now_ms, gap_ms, self._gap_ms)
        self._polled_ms, self._gap_ms = now_ms, gap_ms

    def key_came(self, now_ms: int) -> None:
        """Note a keyframe, requested or not."""
        gap_ms = now_ms - self._key_ms if self._key_ms is not None else None
        self._next_key_ms = _next(now_ms, gap_ms, self._key_gap_ms)
        self._key_ms, self._key_gap_ms = now_ms, gap_ms
        if not self._waiting:
            return
        self._waiting = False
        took_ms = now_ms - self._asked_ms
        if took_ms > ANSWER_MAX_MS:
            self._unanswered += 1
        else:
            self._unanswered = 0
            self._answer_ms += 0.3 * (took_ms - self._answer_ms)

    def take_request(self, now_ms: int, backlog: int) -> bool:
        """Whether to request a keyframe now; True counts as a request.

        Args:
            backlog: Frames that the next poll would decode.
        """
        if self._due_ms is None or backlog < BACKLOG_MIN or not self._key_every_ms:
            return False
        if not self._due_ms - self._answer_ms - SLACK_MS <= now_ms < self._due_ms:
            return False
        every_ms = self._key_every_ms if self._unanswered < UNANSWERED_MAX else ASK_AGAIN_MS
        if now_ms - self._asked_ms < every_ms:
            return False
        self._unanswered += self._waiting
        self._waiting, self._asked_ms = True, now_ms
        return True

    def hold_ms(self, now_ms: int, backlog: int) -> int:
        """How long a poll should wait for a keyframe that is due; 0 if it should not.

        Args:
            backlog: Frames that the poll would decode.
        """
        if backlog < HOLD_BACKLOG_MIN:
            return 0
        expected = [self._next_key_ms] if self._next_key_ms is not None else []
        if self._waiting and self._unanswered < UNANSWERED_MAX:
            expected.append(self._asked_ms + int(self._answer_ms))
        holds = [at_ms - now_ms + KEY_LATE_MS for at_ms in expected if -KEY_LATE_MS < at_ms - now_ms <= KEY_NEAR_MS]
        return min(holds, default=0)


def _next(now_ms: int, gap_ms: int | None, gap_before_ms: int | None) -> int | None:
    """When the next event is due; None if its last two intervals differ."""
    if gap_ms is None or gap_before_ms is None or abs(gap_ms - gap_before_ms) >= STEADY_MS:
        return None
    return now_ms + gap_ms
