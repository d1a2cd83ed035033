"""Bounds the memory of all decoders of a worker together."""

from typing import Final, Protocol, final


class Decoding(Protocol):
    """Something that holds a decoder."""

    @property
    def polled_ms(self) -> int:
        """When its picture was last asked for."""
        ...

    def sleep(self) -> None:
        """Release the decoder. The next poll creates another."""
        ...


@final
class DecoderBudget:
    """Releases decoders when all together may need more than `max_bytes`: the largest first, of equal ones the one that
    was polled longest ago. So inputs with small pictures keep theirs whatever the others publish.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes: Final = max_bytes
        self._held: dict[Decoding, int] = {}
        self.released = 0
        """Decoders released for want of memory."""

    def note(self, holder: Decoding, memory: int) -> None:
        """Note what a holder's decoder may need, in bytes; 0 after its release."""
        if self._held.get(holder, 0) == memory:
            return
        self._held.pop(holder, None)
        if memory:
            self._held[holder] = memory
        while sum(self._held.values()) > self._max_bytes and len(self._held) > 1:
            largest = min(self._held, key=lambda each: (-self._held[each], each.polled_ms))
            del self._held[largest]
            self.released += 1
            largest.sleep()
