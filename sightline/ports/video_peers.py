"""Port of the other servers of a service, as the video backend of one server uses them.

The home of an input is the server whose media workers hold it. A server is named by its incarnation.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol, final, runtime_checkable

from sightline.domain.session.model import VideoInput
from sightline.ports.video import SignalReply, SignalRequest


@final
@dataclass(frozen=True, slots=True)
class HeldInput:
    """An input that a server holds."""

    session_id: str
    input: VideoInput


class InputHolder(Protocol):
    """What a server answers to the others about the inputs of its own media workers."""

    def held(self, session_ids: Collection[str]) -> tuple[HeldInput, ...]:
        """Those of these sessions whose input is open here, or is being opened."""
        ...

    async def close_held(self, ref: str) -> None:
        """Close an input. Idempotent."""
        ...

    async def signal_held(self, request: SignalRequest) -> SignalReply | None:
        """Answer a WHIP or WHEP request; None if the input is not open here."""
        ...

    async def hook_held(self, engine: str, headers: Mapping[str, str], body: bytes) -> int:
        """Handle a callback of an external media server that another server received."""
        ...

    def opened_elsewhere(self, session_id: str) -> None:
        """Another server has opened the input of this session."""
        ...


class VideoPeers(Protocol):
    """The other servers. Every call raises VideoUnavailableError if the server did not answer in time."""

    def attach(self, holder: InputHolder) -> None:
        """Answer the other servers by this holder."""
        ...

    def servers(self) -> frozenset[str]:
        """The other servers that have a valid lease by the last look at the database."""
        ...

    def url_of(self, server: str) -> str | None:
        """URL of a server's internal listener, as its lease says; None if it is not known."""
        ...

    async def await_change(self, known: frozenset[str]) -> frozenset[str]:
        """Wait until the servers differ from those known; returns them."""
        ...

    def owns(self, session_id: str) -> bool:
        """Whether this server owns the session's shard."""
        ...

    def tell_opened(self, session_id: str) -> None:
        """Tell every other server that this one has opened the input of a session; the message may be lost."""
        ...

    async def find(self, server: str, session_ids: Collection[str]) -> tuple[HeldInput, ...]:
        """Those of these inputs that a server holds."""
        ...

    async def close(self, server: str, ref: str) -> None:
        """Close an input that a server holds."""
        ...

    async def signal(self, server: str, request: SignalRequest) -> SignalReply | None:
        """Let a server answer a WHIP or WHEP request; None if it does not hold the input."""
        ...

    async def hook(self, server: str, engine: str, headers: Mapping[str, str], body: bytes) -> int:
        """Let a server handle a callback of an external media server; returns the HTTP status."""
        ...


@runtime_checkable
class FrameSource(Protocol):
    """A video backend that answers other servers' requests for frames over HTTP."""

    async def answer_frame(self, ref: str, headers: Mapping[str, str]) -> SignalReply:
        """Answer one request. Its headers, with lower-case names, must have this service's credential."""
        ...
