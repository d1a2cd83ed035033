"""Attacks on the delivery of webhooks to others."""

import statistics

import trio

from tests.attack.catalogue import attack
from tests.attack.rows.access.on_identity import cookie_of
from tests.attack.rows.service.on_servers import a_service
from tests.attack.target import Target
from tests.video.support.http_server import Reply, listen, serve

SLOW_S = 14.0
WORKSPACES, ENDPOINTS, PINGS = 4, 20, 6
DELIVERY_S_MAX = 12.0
"""A ping that waits for the end of a slow one takes up to SLOW_S."""
SAMPLES = 5


class Receiver:
    """Endpoints of everybody: those of the attacker answer after 14 s."""

    def __init__(self) -> None:
        self.arrived = trio.Event()

    async def answer(self, _method: str, path: str, _headers: object, _body: bytes) -> Reply:
        if path.startswith("/slow"):
            await trio.sleep(SLOW_S)
        else:
            self.arrived.set()
        return 200, [], b""


@attack(
    "B5",
    f"{WORKSPACES * ENDPOINTS} endpoints of {WORKSPACES} workspaces that answer after {SLOW_S:.0f} s, "
    f"{WORKSPACES * ENDPOINTS * PINGS} pings",
    before="another tenant's ping took 0.5 s to 28.7 s",
)
async def slow_endpoints(_target: Target) -> str:
    receiver, took_s = Receiver(), []
    listeners, url = await listen()
    async with trio.open_nursery() as nursery:
        serve(nursery, listeners, receiver.answer)
        async with a_service(SIGHTLINE_WEBHOOK_ALLOW_LOOPBACK="true") as target:

            async def hook(cookie: str, path: str) -> str:
                answer = await target.call("POST", "/webhooks", cookie, {"url": url + path})
                assert answer.status_code == 200, answer.text
                return str(answer.json()["data"]["id"])

            async def ping(cookie: str, hook_id: str) -> None:
                assert (await target.call("POST", f"/webhooks/{hook_id}/ping", cookie)).status_code == 200

            honest = await target.tenant("CONSUMER")
            own = await cookie_of(target, honest.wallet, honest.workspace_id)
            own_hook = await hook(own, "/fast")
            for _ in range(WORKSPACES):
                attacker = await target.tenant("CONSUMER")
                cookie = await cookie_of(target, attacker.wallet, attacker.workspace_id)
                for number in range(ENDPOINTS):
                    slow = await hook(cookie, f"/slow/{number}")
                    for _ in range(PINGS):
                        await ping(cookie, slow)
            for _ in range(SAMPLES):
                receiver.arrived, started = trio.Event(), trio.current_time()
                await ping(own, own_hook)
                with trio.fail_after(60):
                    await receiver.arrived.wait()
                took_s.append(trio.current_time() - started)
        nursery.cancel_scope.cancel()
    seen = f"another tenant's ping p50 {statistics.median(took_s):.2f} s, at most {max(took_s):.2f} s"
    assert max(took_s) < DELIVERY_S_MAX, seen
    return seen
