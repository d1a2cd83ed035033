"""Credentials that may watch, as identity would say."""

import trio

from sightline.domain.access import Holder
from sightline.domain.errors import StoreUnavailableError
from sightline.ports.video import WatchAccess

WORKSPACE = "9c2d41e7-1111-4111-8111-111111111111"
KEY = Holder(is_key=True, credential_id="9c2d41e7-2222-4222-8222-222222222222", workspace_id=WORKSPACE)
SIGN_IN = Holder(is_key=False, credential_id="9c2d41e7-3333-4333-8333-333333333333", workspace_id=WORKSPACE)


class Rights:
    """Credentials that may watch; `is_down`: that cannot be read."""

    def __init__(self, *allowed: Holder) -> None:
        self.allowed = set(allowed)
        self.is_down = False
        self.asked = 0
        self.access = WatchAccess()
        self.access.may_watch = self.may_watch

    async def may_watch(self, holder: Holder) -> bool:
        await trio.lowlevel.checkpoint()
        self.asked += 1
        if self.is_down:
            raise StoreUnavailableError("down")
        return holder in self.allowed
