"""Worlds that run a list of operations, which a property-based test can shrink to the shortest failing list.

Operations start one after another at the pace of the list; what they start runs concurrently with later ones. Ids are
small numbers taken modulo the number of objects, so that every list is valid.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, final

import trio

from sightline.domain.value import Value
from simulation.clients.consumer import Consumer, Wishes
from simulation.clients.device import STEADY, Device
from simulation.faults import FaultRates
from simulation.scenarios import Scenario
from simulation.world import WorldOptions

if TYPE_CHECKING:
    from simulation.world import World


class Deed(StrEnum):
    """The operations that exist."""

    REQUEST = "request"
    DISPATCH = "dispatch"
    ACCEPT = "accept"
    START = "start"
    END = "end"
    CANCEL = "cancel"
    DROP = "drop"
    BEAT = "beat"
    SHOW = "show"
    WAIT = "wait"
    CRASH = "crash"
    PAUSE = "pause"
    TAKE_OVER = "take over"


@final
class SimOperation(Value):
    """One operation: by which consumer or operator, on which session, for how long (seconds)."""

    deed: Deed
    who: int = 0
    session: int = 0
    seconds: int = 1


@final
class Story:
    """Runs operations in a world with two operators and two consumers."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._devices = [Device(world, f"operator-{index}", STEADY) for index in range(2)]
        self._consumers = [Consumer(world, f"consumer-{index}", Wishes(quotes=0.0)) for index in range(2)]
        self._sessions: list[str] = []

    async def play(self, operations: Sequence[SimOperation]) -> None:
        """Sign up everyone, then run the operations in order."""
        async with trio.open_nursery() as nursery:
            for device in self._devices:
                nursery.start_soon(device.sign_up)
            for consumer in self._consumers:
                nursery.start_soon(consumer.sign_up)
        for operation in operations:
            await self._do(operation)
            await trio.sleep(0.05)

    async def _do(self, operation: SimOperation) -> None:
        world, device = self._world, self._devices[operation.who % 2]
        consumer = self._consumers[operation.who % 2]
        session = self._sessions[operation.session % len(self._sessions)] if self._sessions else None
        match operation.deed:
            case Deed.REQUEST:
                world.nursery.start_soon(self._request, consumer)
            case Deed.BEAT:
                world.nursery.start_soon(device.send_heartbeat)
            case Deed.DROP:
                world.nursery.start_soon(device.client.cancel_all)
            case Deed.SHOW:
                device.live_session = session
                device.show_frames()
            case Deed.WAIT:
                await trio.sleep(operation.seconds)
            case Deed.CRASH:
                await world.crash()
            case Deed.PAUSE | Deed.TAKE_OVER:
                world.nursery.start_soon(self._pause, operation)
            case _ if session is not None:
                world.nursery.start_soon(self._command(operation.deed, device, consumer), session)
            case _:
                pass

    def _command(self, deed: Deed, device: Device, consumer: Consumer) -> Callable[[str], Awaitable[object]]:
        commands: dict[Deed, Callable[[str], Awaitable[object]]] = {
            Deed.DISPATCH: consumer.client.dispatch,
            Deed.ACCEPT: device.client.accept,
            Deed.START: device.client.start,
            Deed.END: consumer.client.end,
            Deed.CANCEL: consumer.client.cancel,
        }
        return commands[deed]

    async def _request(self, consumer: Consumer) -> None:
        session_id = await consumer.request()
        if session_id is not None:
            self._sessions.append(session_id)

    async def _pause(self, operation: SimOperation) -> None:
        await self._world.pause(operation.seconds, take_over=operation.deed is Deed.TAKE_OVER)


def story_of(operations: Sequence[SimOperation], *, rates: FaultRates | None = None) -> Scenario:
    """Create a scenario that runs these operations, without faults unless rates are given."""

    async def play(world: World) -> None:
        await Story(world).play(operations)

    given = rates if rates is not None else FaultRates()
    return Scenario(play, options=WorldOptions(active_s=1), adjust=lambda _drawn: given)
