"""The other servers, as the video backend of this one uses them: questions and messages through `Peers`."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final, TypeVar, final

from sightline.actors.kernel import Command
from sightline.cluster.peers.peers import Peers
from sightline.cluster.peers.video_messages import (
    CloseHeldInput,
    FindInputs,
    HandleEngineHook,
    HeldInput,
    InputOpened,
    SignalHeldInput,
)
from sightline.domain.errors import OutcomeUnknownError, UnavailableError, VideoUnavailableError
from sightline.domain.value import replace
from sightline.ports.video import SignalReply, SignalRequest

FIND_TIMEOUT_S: Final = 1.0
CLOSE_TIMEOUT_S: Final = 2.0
SIGNAL_TIMEOUT_S: Final = 6.0
"""Covers the wait for a media worker that is being restarted; publishers give up after 10 s."""
KEPT_BACK: Final = frozenset({"authorization", "cookie"})
"""Headers of callers that WHIP and WHEP do not need."""

M = TypeVar("M")
R = TypeVar("R")


@final
class RemoteVideoPeers:
    """The other servers. Every question raises VideoUnavailableError if the server did not answer in time."""

    def __init__(self, peers: Peers, owns: Callable[[str], bool]) -> None:
        """Ask through `peers`.

        Args:
            owns: Whether this server owns the shard of a session.
        """
        self._peers = peers
        self.owns = owns

    def attach(
        self,
        *,
        held: Callable[[Collection[str]], tuple[HeldInput, ...]],
        close: Callable[[str], Awaitable[None]],
        signal: Callable[[SignalRequest], Awaitable[SignalReply | None]],
        hook: Callable[[str, Mapping[str, str], bytes], Awaitable[int]],
        opened: Callable[[str], None],
    ) -> None:
        """Answer the other servers about the inputs of this one.

        Args:
            held: Those of these sessions whose input is open here, or is being opened.
            close: Closes the input of a ref. Idempotent.
            signal: Answers a WHIP or WHEP request; None if the input is not open here.
            hook: Handles a callback of an external media server that another server received.
            opened: Called when another server has opened the input of a session.
        """

        async def find_inputs(command: FindInputs) -> tuple[HeldInput, ...]:
            return held(command.session_ids)

        async def close_input(command: CloseHeldInput) -> None:
            await close(command.ref)

        async def answer_signal(command: SignalHeldInput) -> SignalReply | None:
            return await signal(command.request)

        async def handle_hook(command: HandleEngineHook) -> int:
            return await hook(command.engine, command.headers, command.body)

        self._peers.answer(FindInputs, find_inputs)
        self._peers.answer(CloseHeldInput, close_input)
        self._peers.answer(SignalHeldInput, answer_signal)
        self._peers.answer(HandleEngineHook, handle_hook)
        self._peers.listen(InputOpened, lambda _sender, message: opened(message.session_id))

    def servers(self) -> frozenset[str]:
        """The other servers that have a valid lease by the last look at the database."""
        return self._peers.routes.leased

    def url_of(self, server: str) -> str | None:
        """URL of a server's internal listener, as its lease says."""
        return self._peers.routes.url_of(server)

    async def await_change(self, known: frozenset[str]) -> frozenset[str]:
        """Wait until the servers differ from those known; returns them."""
        while self._peers.routes.leased == known:
            await self._peers.routes.changed.wait()
        return self._peers.routes.leased

    def tell_opened(self, session_id: str) -> None:
        """Tell every other server that this one has opened the input of a session; the message may be lost."""
        self._peers.tell_all(InputOpened(session_id))

    async def find(self, server: str, session_ids: Collection[str]) -> tuple[HeldInput, ...]:
        """Those of these inputs that a server holds."""
        return await self._ask(server, FindInputs(tuple(session_ids)), FIND_TIMEOUT_S)

    async def close(self, server: str, ref: str) -> None:
        """Close an input that a server holds."""
        await self._ask(server, CloseHeldInput(ref), CLOSE_TIMEOUT_S)

    async def signal(self, server: str, request: SignalRequest) -> SignalReply | None:
        """Let a server answer a WHIP or WHEP request; None if it does not hold the input."""
        headers = {name: value for name, value in request.headers.items() if name not in KEPT_BACK}
        return await self._ask(server, SignalHeldInput(replace(request, headers=headers)), SIGNAL_TIMEOUT_S)

    async def hook(self, server: str, engine: str, headers: Mapping[str, str], body: bytes) -> int:
        """Let a server handle a callback of an external media server; returns the HTTP status."""
        return await self._ask(server, HandleEngineHook(engine, dict(headers), body), CLOSE_TIMEOUT_S)

    async def _ask(self, server: str, command: Command[M, R], timeout_s: float) -> R:
        try:
            return await self._peers.ask(server, command, timeout_s=timeout_s)
        except (UnavailableError, OutcomeUnknownError) as error:
            raise VideoUnavailableError(f"the server that may have the input: {error}") from error
