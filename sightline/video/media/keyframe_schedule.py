"""When the next poll and the next keyframe are due, and how to bring the two together.

A poll decodes everything since the newest keyframe, so what a slow poller costs is decided by where keyframes
fall. Encoders of browsers and phones make one when they are asked and hardly ever otherwise: asked at the right
time, a poll decodes a few frames in place of thirty. The price is one larger frame a poll, no more than OBS
sends by itself. An encoder that follows a clock of its own ignores the request; there a poll that comes at the
very end of a group waits for the keyframe, which takes hardly longer than decoding the group would.
"""

from typing import Final, final

STEADY_MS: Final = 80
"""Polls, or keyframes, are steady if two gaps in a row differ by less."""
BACKLOG_MIN: Final = 8
"""Fewer frames than this are decoded for less than a keyframe and its traffic cost."""
SLACK_MS: Final = 60
"""Two frames at 30 a second: requests go out when a frame comes in, and polls come a little early."""
ANSWER_FIRST_MS: Final = 100.0
ANSWER_MAX_MS: Final = 400
"""A keyframe that comes later is taken for one that would have come anyway."""
HOLD_BACKLOG_MIN: Final = 15
KEY_NEAR_MS: Final = 90
"""A keyframe due so soon is waited for: decoding a second of 720p takes 40 ms, and its picture would be older."""
KEY_LATE_MS: Final = 30
UNANSWERED_MAX: Final = 3
ASK_AGAIN_MS: Final = 30_000
"""After so many requests without an answer the publisher is left alone for so long."""


@final
class KeyframeSchedule:
    """Foresees the polls and the keyframes of one input. Pure: time comes in as an argument.

    Args:
        key_every_ms: Least time between two requests; 0 means never to ask.
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
        """A poll has come."""
        gap_ms = now_ms - self._polled_ms if self._polled_ms is not None else None
        self._due_ms = _next(now_ms, gap_ms, self._gap_ms)
        self._polled_ms, self._gap_ms = now_ms, gap_ms

    def key_came(self, now_ms: int) -> None:
        """A keyframe has come, asked for or not."""
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
        """Whether to ask for a keyframe now; True counts as asked.

        Args:
            backlog: Frames that the next poll would have to decode.
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
        """How long a poll should wait for a keyframe that is about to come; 0 if it should not.

        Args:
            backlog: Frames that the poll would have to decode.
        """
        if backlog < HOLD_BACKLOG_MIN:
            return 0
        expected = [self._next_key_ms] if self._next_key_ms is not None else []
        if self._waiting and self._unanswered < UNANSWERED_MAX:
            expected.append(self._asked_ms + int(self._answer_ms))
        holds = [at_ms - now_ms + KEY_LATE_MS for at_ms in expected if -KEY_LATE_MS < at_ms - now_ms <= KEY_NEAR_MS]
        return min(holds, default=0)


def _next(now_ms: int, gap_ms: int | None, gap_before_ms: int | None) -> int | None:
    """When something that has just happened should happen again; None if its last two gaps differ."""
    if gap_ms is None or gap_before_ms is None or abs(gap_ms - gap_before_ms) >= STEADY_MS:
        return None
    return now_ms + gap_ms
