"""Benchmarks escrow beside `advisory`: the time of a start, and from a session's end to CONFIRMED.

    python -m bench.escrow [--sessions 20]

Two servers on embedded parts in one run, whose sessions alternate. Sessions are not filmed, so that only the service
and its chain are measured.
"""

import argparse
import statistics
import tempfile
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import trio

from tests.chain.escrow.test_escrow_server import FUNDS, signed_session, tracked
from tests.client.api import Api
from tests.e2e.server import PLACE, Server, Tenant, a_tenant, go_online

POLL_S = 0.005


@dataclass
class Side:
    """One server with a consumer and an operator, and what was measured on it, in ms."""

    policy: str
    server: Server
    consumer: Tenant
    watcher: Api
    device: Api
    starts: list[float] = field(default_factory=list)
    confirmations: list[float] = field(default_factory=list)

    async def run_session(self) -> None:
        watcher, device = self.watcher, self.device
        if self.policy == "escrow":
            session = await signed_session(watcher, self.consumer)
        else:
            session = await watcher.post("/sessions", lat=PLACE[0], lng=PLACE[1], maxDurationSeconds=60)
        path = f"/sessions/{session['id']}"
        await watcher.post(f"{path}/dispatch")
        began = trio.current_time()
        await device.post(f"{path}/start")
        self.starts.append((trio.current_time() - began) * 1_000)
        await watcher.post(f"{path}/end")
        began = trio.current_time()
        while (await watcher.get(f"/settlements/{session['id']}"))["state"] != "CONFIRMED":  # noqa: ASYNC110
            await trio.sleep(POLL_S)
        self.confirmations.append((trio.current_time() - began) * 1_000)
        if self.policy == "escrow":
            await tracked(watcher, FUNDS)

    def line(self) -> str:
        figures = (
            f"{statistics.median(found):.0f} ms (worst {max(found):.0f})" for found in (self.starts, self.confirmations)
        )
        return f"| {self.policy} | {' | '.join(figures)} |"


async def open_side(stack: AsyncExitStack, policy: str) -> Side:
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-escrow-")))
    # The sessions of one payer end without a charge.
    server = Server(directory, env={"SIGHTLINE_FUNDS_POLICY": policy, "SIGHTLINE_UNPAID_OPENS_MAX": "0"})
    stack.callback(server.end)
    await server.start()
    consumer = await a_tenant(server.url, "CONSUMER", "consumer")
    operator = await a_tenant(server.url, "SUPPLIER", "operator")
    await go_online(server.url, operator)
    watcher = await stack.enter_async_context(Api(server.url, key=consumer.key))
    device = await stack.enter_async_context(Api(server.url, key=operator.key))
    await watcher.post("/wallet/faucet", amountMicroUsdc=str(FUNDS))
    await tracked(watcher, FUNDS)
    return Side(policy, server, consumer, watcher, device)


async def main(sessions: int) -> None:
    async with AsyncExitStack() as stack:
        sides = [await open_side(stack, policy) for policy in ("advisory", "escrow")]
        for number in range(sessions + 2):
            for side in sides if number % 2 else reversed(sides):
                await side.run_session()
                if number < 2:  # connections and caches are warm afterwards
                    side.starts.clear()
                    side.confirmations.clear()
        print("| policy | start | end to CONFIRMED |\n|---|---|---|")
        for side in sides:
            print(side.line())
            await side.server.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--sessions", type=int, default=20)
    trio.run(main, parser.parse_args().sessions)
