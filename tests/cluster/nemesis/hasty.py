"""A consumer that gives up a dispatch whose outcome is unknown, so that it may take effect while others go on."""

from dataclasses import dataclass, field
from typing import Final

import trio

from tests.e2e.history import Made
from tests.e2e.server import PLACE
from tests.e2e.traffic import Caller

DISPATCH_EVERY_S: Final = 0.1


@dataclass
class Hasty:
    """Dispatches sessions. All other callers repeat a call until its outcome is known."""

    consumer: Caller
    given_up: list[Made] = field(default_factory=list)
    _finished: trio.Event = field(default_factory=trio.Event)

    async def run(self) -> None:
        while self.consumer.stage.is_open:
            wish = {"lat": PLACE[0], "lng": PLACE[1], "waitTimeoutSeconds": 3_600}
            session = f"/sessions/{(await self.consumer.act('POST', '/sessions', wish)).data['id']}"
            dispatch = self.consumer.make("POST", f"{session}/dispatch")
            while (told := await self.consumer.attempt(dispatch)) is None and not dispatch.lost:
                await self.consumer.pause(0.02)
            await self.consumer.pause(DISPATCH_EVERY_S)
            if told is None:
                self.given_up.append(dispatch)
            elif told.is_done:
                await self.consumer.act("POST", f"{session}/end")
            else:
                await self.consumer.act("DELETE", session)
        self._finished.set()

    async def find_outcomes(self) -> int:
        """Repeat the dispatches that were given up until their outcome is known; returns how many took effect.

        The stage is closed. The last dispatch may still be in flight; it is waited for.
        """
        await self._finished.wait()
        return sum([(await self.consumer.repeat(dispatch)).is_done for dispatch in self.given_up])
