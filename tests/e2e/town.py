"""Funded consumers and operators with devices that use one server, and a reader that collects the final state."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import trio

from sightline.chain.embedded.faucet import open_running_faucet
from sightline.system.ids import SystemIds
from sightline_client import AsyncChain
from sightline_client.wallet import LocalWallet
from tests.client.api import Api
from tests.e2e.history import Found
from tests.e2e.server import PLACE, Server, Tenant, a_tenant, go_online, until
from tests.e2e.traffic import FILMED_S, STUDIO, Caller, Stage, bring_to_an_end, film

FUNDS: Final = 50_000_000
CONSUMERS: Final = 2
OPERATORS: Final = 3


class Town:
    """All callers of the server."""

    def __init__(self, stage: Stage, chain: AsyncChain, config: dict[str, Any]) -> None:
        self.stage = stage
        self.chain = chain
        self.config = config
        self.consumers: list[Caller] = []
        self.operators: list[Caller] = []

    @property
    def everybody(self) -> list[Caller]:
        return self.consumers + self.operators


@asynccontextmanager
async def a_town(server: Server, seed: str, chain_directory: Path | None = None) -> AsyncIterator[Town]:
    """Start the server; sign up funded consumers and ONLINE operators. The last of each have their own place.

    Args:
        chain_directory: Directory of the embedded chain's files; default: in the server's data directory.
    """
    await server.start()
    async with AsyncExitStack() as stack:
        async with Api(server.url) as api:
            config = await api.get("/config")
        town = Town(Stage(server, seed), AsyncChain(config["rpcUrl"]), config)
        faucet = await stack.enter_async_context(
            open_running_faucet(chain_directory or server.directory / "data" / "chain", SystemIds())
        )
        for number in range(CONSUMERS + OPERATORS + 2):
            is_consumer = number <= CONSUMERS
            wallet = LocalWallet.create()
            await faucet.fund(wallet.address, FUNDS)
            role = "CONSUMER" if is_consumer else "SUPPLIER"
            tenant = await a_tenant(server.url, role, f"town-{number}", wallet)
            await _prepare(town, tenant, number)
            caller = Caller(town.stage, tenant, f"{role.lower()} {number}")
            (town.consumers if is_consumer else town.operators).append(await stack.enter_async_context(caller.opened()))
        town.stage.rise()
        yield town


async def _prepare(town: Town, tenant: Tenant, number: int) -> None:
    if number <= CONSUMERS:
        token, spender = town.config["usdcAddress"], town.config["settlementAddress"]
        await town.chain.approve(tenant.wallet, token=token, spender=spender, amount=FUNDS)
    else:
        place = STUDIO if number == CONSUMERS + OPERATORS + 1 else PLACE
        await go_online(town.stage.server.url, tenant, place)


def start_traffic(town: Town, nursery: trio.Nursery, *, filmed_s: float = FILMED_S) -> None:
    """Start every consumer, operator and device; they stop when the stage is closed.

    Args:
        filmed_s: How long each session of the last consumer and the last operator is filmed.
    """
    for consumer in town.consumers[:-1]:
        nursery.start_soon(consumer.consume)
        nursery.start_soon(consumer.consume)
    for operator in town.operators[:-1]:
        nursery.start_soon(operator.operate)
        nursery.start_soon(operator.beat)
    nursery.start_soon(town.operators[-1].beat, STUDIO)
    nursery.start_soon(film, town.consumers[-1], town.operators[-1], filmed_s)


async def repeat_some(town: Town) -> None:
    """Repeat calls after a restart that were answered before it."""
    answered = [made for made in town.stage.history.made if made.is_done]
    callers = {caller.id: caller for caller in town.everybody}
    for made in town.stage.rng(f"repeats {len(answered)}").sample(answered, min(8, len(answered))):
        await callers[made.workspace_id].repeat(made)


async def find(town: Town) -> Found:
    """End all sessions, and read the final state."""
    operators = {operator.id: operator for operator in town.operators}
    for consumer in town.consumers:
        await bring_to_an_end(consumer, operators)
    found = Found(frozenset(consumer.id for consumer in town.consumers), {}, funds=FUNDS)
    for consumer in town.consumers:
        for listed in await consumer.read_all("/sessions", view="consumer"):
            await _find_session(consumer, listed, found)
    for operator in town.operators:
        read = lambda operator=operator: operator.read(f"/workspaces/{operator.id}")  # noqa: E731
        await until(read, lambda seen: seen["availabilityState"] != "BUSY", "operator is free again")
        found.last_sequences[operator.id] = await operator.last_sequence()
    token = town.config["usdcAddress"]
    for caller in town.everybody:
        found.workspaces[caller.id] = await caller.read(f"/workspaces/{caller.id}")
        balance = await town.chain.balance_of(token, caller.tenant.wallet.address)
        found.wallets[caller.id] = await until(
            lambda caller=caller: caller.read("/wallet"),
            lambda seen, balance=balance: (seen["trackedBalance"], seen["heldMicroUsdc"]) == (str(balance), "0"),
            "wallet follows the chain",
        )
        found.balances[caller.id] = balance
        found.ledgers[caller.id] = await caller.read_all("/wallet/events")
    return found


async def _find_session(consumer: Caller, listed: dict[str, Any], found: Found) -> None:
    path, settled = f"/sessions/{listed['id']}", f"/settlements/{listed['id']}"
    if listed["state"] == "ENDED":
        await until(
            lambda: consumer.read(path), lambda seen: seen["settlementTxHash"] is not None, "settlement is told"
        )
        found.meters[listed["id"]] = await consumer.read(f"{path}/meter")
    found.sessions[listed["id"]] = await consumer.read(path)
    found.settlements[listed["id"]] = await consumer.read(settled)
