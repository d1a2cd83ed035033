"""Messages between servers about video inputs."""

from collections.abc import Mapping
from typing import final

from sightline.actors.kernel import Command
from sightline.domain.session.model import VideoInput
from sightline.domain.value import Value
from sightline.ports.video import SignalReply, SignalRequest


@final
class HeldInput(Value):
    """An input that a server holds."""

    session_id: str
    input: VideoInput


@final
class FindInputs(Value, Command["FindInputs", tuple[HeldInput, ...]]):
    """Which inputs of these sessions the receiver holds."""

    session_ids: tuple[str, ...]


@final
class CloseHeldInput(Value, Command["CloseHeldInput", None]):
    """Close an input if the receiver holds it."""

    ref: str


@final
class SignalHeldInput(Value, Command["SignalHeldInput", SignalReply | None]):
    """Answer a WHIP or WHEP request; None if the receiver does not hold the input."""

    request: SignalRequest


@final
class HandleEngineHook(Value, Command["HandleEngineHook", int]):
    """Handle a callback of an external media server; answered with the HTTP status."""

    engine: str
    headers: Mapping[str, str]
    body: bytes


@final
class InputOpened(Value):
    """The sender has opened the input of this session: another server that holds it closes it."""

    session_id: str
