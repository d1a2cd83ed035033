"""Messages between servers about video inputs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

from sightline.actors.kernel import Command
from sightline.domain.session.model import VideoInput
from sightline.ports.video import SignalReply, SignalRequest


@final
@dataclass(frozen=True, slots=True)
class HeldInput:
    """An input that a server holds."""

    session_id: str
    input: VideoInput


@final
@dataclass(frozen=True, slots=True)
class FindInputs(Command["FindInputs", tuple[HeldInput, ...]]):
    """Which inputs of these sessions the receiver holds."""

    session_ids: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True)
class CloseHeldInput(Command["CloseHeldInput", None]):
    """Close an input if the receiver holds it."""

    ref: str


@final
@dataclass(frozen=True, slots=True)
class SignalHeldInput(Command["SignalHeldInput", SignalReply | None]):
    """Answer a WHIP or WHEP request; None if the receiver does not hold the input."""

    request: SignalRequest


@final
@dataclass(frozen=True, slots=True)
class HandleEngineHook(Command["HandleEngineHook", int]):
    """Handle a callback of an external media server; answered with the HTTP status."""

    engine: str
    headers: Mapping[str, str]
    body: bytes


@final
@dataclass(frozen=True, slots=True)
class InputOpened:
    """The sender has opened the input of this session: another server that holds it closes it."""

    session_id: str
