"""Inject faults drawn from a seed under load, check recovery after each, and check the whole history at the end."""

import sys
import time
import traceback
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

import trio

from sightline.chain.embedded.faucet import open_running_faucet
from sightline.domain.value import Value
from sightline.system.ids import SystemIds
from sightline_client.wallet import LocalWallet
from tests.e2e.history import violations
from tests.e2e.server import a_tenant, go_online
from tests.e2e.town import FUNDS, Town, a_town, find, repeat_some, start_traffic
from tests.e2e.traffic import STUDIO, Caller
from tests.nemesis.faults import Fault, faults_of
from tests.nemesis.system import Arrangement, System, open_system

RECOVERY_S: Final = 60.0
TAKES_EFFECT_S: Final = 1.0
"""Delay before readiness is read, because the server does not detect a kill or a step at once."""
BETWEEN_S: Final = (0.5, 3.0)
DESCRIPTORS_GROWN_MAX: Final = 80
THREADS_GROWN_MAX: Final = 16
MEMORY_GROWN_MAX: Final = 200 * 1024 * 1024
PROBE_PLACE: Final = (STUDIO[0] + 1.0, STUDIO[1] + 1.0)


class Injected(Value):
    """One injected fault and its result."""

    arrangement: Arrangement
    name: str
    recovered_s: float | None
    """Seconds; None if the server did not recover within the limit."""


class Size(Value):
    """Resource use of the server's process at one moment."""

    at_s: float
    descriptors: int
    threads: int
    memory: int


@dataclass
class Outcome:
    """Result of one arrangement's run."""

    arrangement: Arrangement
    injected: list[Injected] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    sizes: list[Size] = field(default_factory=list)
    load: str = ""


@dataclass
class Probe:
    """A consumer and an operator that run one session from request to settlement, to prove that the server works."""

    consumer: Caller
    operator: Caller
    _sequence: int = 0

    async def whole_session(self) -> None:
        """Create, dispatch, start, end and settle a session; returns when the settlement is confirmed."""
        wish = {"lat": PROBE_PLACE[0], "lng": PROBE_PLACE[1], "maxDurationSeconds": 60, "waitTimeoutSeconds": 3600}
        while True:
            # Read again in each round: a clock step may end the session.
            await self._beat()
            session_id = (await self.consumer.act("POST", "/sessions", wish)).data["id"]
            if not (await self.consumer.act("POST", f"/sessions/{session_id}/dispatch")).is_done:
                await self.consumer.act("DELETE", f"/sessions/{session_id}")
                await trio.sleep(0.3)
                continue
            if (await self.operator.act("POST", f"/sessions/{session_id}/start")).is_done:
                break
        ended = await self.consumer.act("POST", f"/sessions/{session_id}/end")
        while (await self.consumer.read(f"/settlements/{session_id}"))["state"] != "CONFIRMED":
            if not ended.is_done and (await self.consumer.read(f"/sessions/{session_id}"))["state"] != "ENDED":
                return
            await trio.sleep(0.1)

    async def _beat(self) -> None:
        self._sequence += 1
        fix = {"lat": PROBE_PLACE[0], "lng": PROBE_PLACE[1], "accuracyMeters": 5, "sequence": self._sequence}
        told = await self.operator.send_once(f"/workspaces/{self.operator.id}/location", fix)
        if told is not None and told.is_done:
            self.operator.stage.history.acknowledge(self.operator.id, self._sequence)


async def run(outcome: Outcome, minutes: float, seed: str, only: str | None = None) -> None:
    """Inject faults for this many seconds, then check everything.

    Args:
        outcome: Results are added to it, so that a run that fails half-way still reports what it did.
        only: Inject only the faults whose name contains this text.
    """
    arrangement = outcome.arrangement
    rng = Random(f"{seed}:{arrangement.value}")
    async with open_system(arrangement) as system:
        async with a_town(system.server, seed, system.chain_directory) as town, trio.open_nursery() as nursery:
            start_traffic(town, nursery)
            async with a_probe(town, system.chain_directory) as probe:
                nursery.start_soon(snoop, town)
                await probe.whole_session()
                await inject_faults(system, town, probe, outcome, faults_drawn(arrangement, rng, only), minutes, rng)
                await until_money_moved(town)
                town.stage.closed.set()
                _say(f"{arrangement.value}: traffic ends, the history is checked")
                history, found = town.stage.history, await find(town)
                found.rows = await system.rows()
                outcome.violations += violations(history, found)
                if not sum(int(session["chargedMicroUsdc"]) for session in found.sessions.values()):
                    outcome.violations.append("no money moved: that the sums agree says nothing")
        outcome.violations += [f"the server ended by itself: {reason}" for reason in system.ended_by_itself]
        outcome.load = (
            f"{len(history.made)} changes ({sum(made.lost for made in history.made)} repeats of unknown outcomes), "
            f"{len(history.unkeyed)} unkeyed creates, {len(found.sessions)} sessions, {len(found.meters)} ended, "
            f"{sum(int(session['chargedMicroUsdc']) for session in found.sessions.values())} micro-USDC charged, "
            f"{history.acknowledged} heartbeats acknowledged"
        )


async def until_money_moved(town: Town) -> None:
    """Let the traffic go on until a filmed session was charged, up to the limit of a recovery."""
    with trio.move_on_after(RECOVERY_S):
        while True:
            page = await town.consumers[-1].read("/sessions", view="consumer", state=["ENDED"])
            if any(int(session["chargedMicroUsdc"]) for session in page["items"]):
                return
            await trio.sleep(0.5)


def faults_drawn(arrangement: Arrangement, rng: Random, only: str | None) -> Iterator[Fault]:
    """Yield all faults in a random order, then again in another order, without end."""
    chosen = [fault for fault in faults_of(arrangement) if only is None or only in fault.name]
    while chosen:
        yield from rng.sample(chosen, len(chosen))


async def inject_faults(
    system: System,
    town: Town,
    probe: Probe,
    outcome: Outcome,
    faults: Iterator[Fault],
    minutes: float,
    rng: Random,
) -> None:
    """Inject one fault after the other, each after the server has recovered from the previous one."""
    until = trio.current_time() + minutes * 60
    for fault in faults:
        if trio.current_time() >= until:
            return
        await trio.sleep(rng.uniform(*BETWEEN_S))
        before = system.events()
        await fault.inject(system, town.stage, rng)
        recovered_s = await recover(system, probe)
        outcome.injected.append(Injected(system.arrangement, fault.name, recovered_s))
        if recovered_s is None:
            reason = await system.unready() or "a whole session did not work"
            outcome.violations.append(f"{fault.name}: not recovered within {RECOVERY_S:.0f} s: {reason}")
            _say(f"  the log ends:\n{system.server.log()[-6000:]}")
            await system.server.kill_everything()
            await system.server.start()
        took = "NOT RECOVERED" if recovered_s is None else f"recovered in {recovered_s:.1f} s"
        logged = ", ".join(f"{event} {count}" for event, count in (system.events() - before).most_common(6))
        _say(f"{system.arrangement.value}: {fault.name}: {took}; logged: {logged or 'nothing'}")
        outcome.sizes.append(measure(system))
        await repeat_some(town)


async def recover(system: System, probe: Probe) -> float | None:
    """Seconds until the server is ready, no actor is parked, and a whole session works; None after the limit."""
    began = trio.current_time()
    with trio.move_on_after(RECOVERY_S):
        await trio.sleep(TAKES_EFFECT_S)
        while await system.unready() is not None:
            await system.restart_if_ended()
            await trio.sleep(0.1)
        await probe.whole_session()
        while await system.unready() is not None:
            await system.restart_if_ended()
            await trio.sleep(0.1)
        return trio.current_time() - began
    return None


def measure(system: System) -> Size:
    """Measure descriptors, threads and resident memory of the server's process."""
    process = system.process
    with process.oneshot():
        return Size(time.monotonic(), process.num_fds(), process.num_threads(), process.memory_info().rss)


def growth(sizes: list[Size]) -> list[str]:
    """List what grew by more than its limit since the second measurement; before it, caches are still cold."""
    if len(sizes) < 3:
        return []
    first, last = sizes[1], sizes[-1]
    limits = {
        "descriptors": DESCRIPTORS_GROWN_MAX,
        "threads": THREADS_GROWN_MAX,
        "memory": MEMORY_GROWN_MAX,
    }
    return [
        f"{name} grew from {getattr(first, name)} to {getattr(last, name)}"
        for name, limit in limits.items()
        if getattr(last, name) - getattr(first, name) > limit
    ]


@asynccontextmanager
async def a_probe(town: Town, chain_directory: Path) -> AsyncIterator[Probe]:
    """Sign up a consumer and an operator at their own place; the final check includes them."""
    made: dict[str, Any] = {}
    async with open_running_faucet(chain_directory, SystemIds()) as faucet:
        for role in ("CONSUMER", "SUPPLIER"):
            wallet = LocalWallet.create()
            await faucet.fund(wallet.address, FUNDS)
            made[role] = await a_tenant(town.stage.server.url, role, f"probe-{role.lower()}", wallet)
    token, spender = town.config["usdcAddress"], town.config["settlementAddress"]
    await town.chain.approve(made["CONSUMER"].wallet, token=token, spender=spender, amount=FUNDS)
    await go_online(town.stage.server.url, made["SUPPLIER"], PROBE_PLACE)
    consumer = Caller(town.stage, made["CONSUMER"], "probe consumer")
    operator = Caller(town.stage, made["SUPPLIER"], "probe operator")
    async with consumer.opened(), operator.opened():
        town.consumers.insert(0, consumer)
        town.operators.insert(0, operator)
        yield Probe(consumer, operator)


async def snoop(town: Town) -> None:
    """Request other tenants' sessions and wallets continuously; an answer with their data is a violation."""
    one, other = town.consumers[0], town.consumers[-1]
    rng = town.stage.rng("snoop")
    while town.stage.is_open:
        theirs = [made.session_id for made in town.stage.history.done("create") if made.workspace_id == other.id]
        for path in [f"/workspaces/{other.id}/api-keys", *(f"/sessions/{id_}" for id_ in theirs[-1:])]:
            told = await one._send("GET", path, None, {})
            if told is not None and told.is_done:
                town.stage.history.unexpected.append(f"{one.id} was shown {path} of another tenant")
        await trio.sleep(rng.uniform(0.1, 0.5))


def report(outcomes: list[Outcome], seed: str, minutes: float, only: str | None) -> tuple[str, bool]:
    """Return the table as text, and whether all checks passed."""
    lines, wrong = [], [f"{one.arrangement.value}: {text}" for one in outcomes for text in one.violations]
    names = dict.fromkeys((injected.arrangement, injected.name) for one in outcomes for injected in one.injected)
    lines.append(f"{'where':10} {'fault':36} {'injected':>8} {'survived':>8} {'worst recovery s':>16}")
    for where, name in sorted(names, key=lambda pair: (pair[0].value, pair[1])):
        those = [it for one in outcomes for it in one.injected if (it.arrangement, it.name) == (where, name)]
        took_s = [it.recovered_s for it in those if it.recovered_s is not None]
        worst = f"{max(took_s):.1f}" if took_s else "-"
        lines.append(f"{where.value:10} {name:36} {len(those):8} {len(took_s):8} {worst:>16}")
    for one in outcomes:
        lines.append(f"{one.arrangement.value}: {one.load}")
        if len(one.sizes) > 1:
            first, last = one.sizes[1], one.sizes[-1]
            lines.append(
                f"{one.arrangement.value}: server's process, first and last: descriptors {first.descriptors} and "
                f"{last.descriptors}, threads {first.threads} and {last.threads}, "
                f"memory {first.memory >> 20} and {last.memory >> 20} MiB"
            )
        wrong += [f"{one.arrangement.value}: {text}" for text in growth(one.sizes)]
    lines += [f"VIOLATION {text}" for text in wrong]
    again = f"make nemesis minutes={minutes:g} seed={seed}" + (f" only='{only}'" if only else "")
    lines.append(f"{'FAILED' if wrong else 'HELD'}; to repeat: {again}")
    return "\n".join(lines), not wrong


async def run_all(minutes: float, seed: str, only: str | None, arrangements: list[Arrangement]) -> bool:
    """Divide the time among the arrangements and print the table. Returns whether all checks passed."""
    outcomes = []
    for arrangement in arrangements:
        outcome = Outcome(arrangement)
        outcomes.append(outcome)
        try:
            await run(outcome, minutes / len(arrangements), seed, only)
        except Exception:  # noqa: BLE001  the table is printed after any failure
            outcome.violations.append(f"the run did not reach its end:\n{traceback.format_exc()}")
    text, held = report(outcomes, seed, minutes, only)
    _say(text)
    return held


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
