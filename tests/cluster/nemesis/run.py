"""Inject faults drawn from a seed under load, check recovery after each, and check the whole history at the end."""

import signal
import sys
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from statistics import median
from typing import Final

import httpx
import msgspec
import trio

from sightline.actors.shards import shard_of
from sightline.bootstrap.process import EXIT_FENCED
from sightline.domain.value import Value
from tests.cluster.nemesis.checkout import open_checkout
from tests.cluster.nemesis.claims import ClaimRecord, judge, operations_of, write_history
from tests.cluster.nemesis.faults import FAULTS, UPGRADE, Fault, Target
from tests.cluster.nemesis.hasty import Hasty
from tests.cluster.nemesis.system import Arrangement, Service, open_service
from tests.cluster.nemesis.watch import SLOW_S, Answers, Register, Watch
from tests.e2e.history import violations
from tests.e2e.town import Town, a_town, find, repeat_some, start_traffic
from tests.nemesis.run import Probe, a_probe
from tests.nemesis.system import read_rows

RECOVERY_S: Final = 60.0
CLAIMS: Final = Path(".interop", "cluster")
"""Default directory of the operations that Porcupine judges; each run replaces those of its arrangement."""
BALANCED_WITHIN_S: Final = 120.0
BETWEEN_S: Final = (0.5, 2.0)
FILMED_S: Final = 15.0
"""How long a session is filmed: most faults hit one that is being charged."""


class Plan(Value):
    """What is injected: rounds of every fault, for at most some minutes."""

    minutes: float
    rounds: int
    seed: str
    only: str | None = None
    logs: Path | None = None
    """Directory for the logs of all servers."""
    upgrade_from: str | None = None
    """A commit whose code the servers run at first. They are upgraded one after the other before the faults."""
    ends: trio.Event = msgspec.field(default_factory=trio.Event)
    """Set it to end after the current fault."""

    def claims(self, arrangement: Arrangement) -> Path:
        """The file of the operations that Porcupine judges."""
        return (self.logs or CLAIMS) / arrangement.value / "claims.jsonl"

    def faults(self, arrangement: Arrangement, rng: Random) -> Iterator[Fault]:
        wanted = (self.only or "").split(",")
        chosen = [each for each in FAULTS if arrangement in each.where and any(word in each.name for word in wanted)]
        for _ in range(self.rounds):
            yield from rng.sample(chosen, len(chosen))


class Injected(Value):
    """One injected fault and its result."""

    name: str
    pauses_s: list[float]
    """How long each watched session did not answer, at worst; after a planned stop: each one that moved."""
    recovered_s: float | None
    """From the removal of the cause until all servers are ready and a whole session works; None: never."""
    answers: Counter[int]
    unknown: int


@dataclass
class Outcome:
    """Result of one arrangement's run."""

    arrangement: Arrangement
    injected: list[Injected] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    exits: list[str] = field(default_factory=list)
    load: str = "no load"


async def run(outcome: Outcome, plan: Plan) -> None:
    """Inject the faults, then check everything. Results are added to `outcome`, also if the run fails half-way."""
    arrangement = outcome.arrangement
    rng, answers, claims = Random(f"{plan.seed}:{arrangement.value}"), Answers(), ClaimRecord()

    def note(answer: httpx.Response, began: float) -> None:
        answers.note(answer, began)
        claims.note(answer, began)

    async with AsyncExitStack() as stack:
        code = None if plan.upgrade_from is None else stack.enter_context(open_checkout(plan.upgrade_from))
        service = await stack.enter_async_context(open_service(arrangement, plan.seed, code))
        try:
            async with a_town(service, plan.seed, service.chain_directory) as town, trio.open_nursery() as nursery:
                town.stage.note = note
                async with a_probe(town, service.chain_directory) as probe:
                    watch = Watch(service, probe.consumer, rng)
                    await watch.open()
                    start_traffic(town, nursery, filmed_s=FILMED_S)
                    register, hasty = Register(town.consumers[-1]), Hasty(town.consumers[-1])
                    for work in (watch.run, register.write, register.read, register.read, hasty.run):
                        nursery.start_soon(work)
                    for operator in town.operators:
                        nursery.start_soon(claims.watch, operator)
                    await probe.whole_session()
                    await Injection(service, town, probe, watch, answers, outcome).run(plan, rng)
                    town.stage.closed.set()
                    _say(f"{arrangement.value}: traffic ends, the history is checked")
                    took_effect = await hasty.find_outcomes()
                    history, found = town.stage.history, await find(town)
                    found.rows = await read_rows(service.layout.dsn)
                    outcome.violations += violations(history, found) + answers.unexpected
            write_history(operations_of(history, claims), path := plan.claims(arrangement))
            wrong, judged = await judge(path)
            outcome.violations += wrong
        except BaseException:
            _say(service.logs())
            raise
        finally:
            if plan.logs is not None:
                service.keep_logs(plan.logs / arrangement.value)
        charged = [int(session["chargedMicroUsdc"]) for session in found.sessions.values()]
        if not any(charged):
            outcome.violations.append("no session was charged, so the money was not tested")
        outcome.exits = service.exits
        outcome.load = (
            f"{len(history.made)} changes ({sum(made.lost for made in history.made)} repeats of unknown outcomes), "
            f"{len(history.unkeyed)} unkeyed creates, {len(found.sessions)} sessions, {len(found.meters)} ended, "
            f"{sum(charged)} micro-USDC charged for {sum(map(bool, charged))} of them, "
            f"{history.acknowledged} heartbeats acknowledged, {register.reads} reads of a name that changes, "
            f"{len(watch.reads)} reads of watched sessions; answers {_counts(answers.statuses)}, "
            f"{len(answers.slow)} of them after more than {SLOW_S:g} s; {judged}, "
            f"{len(hasty.given_up)} dispatches were given up, and {took_effect} of them took effect"
        )


@dataclass
class Injection:
    """Injects one fault after the other, each after the service has recovered from the previous one."""

    service: Service
    town: Town
    probe: Probe
    watch: Watch
    answers: Answers
    outcome: Outcome

    async def run(self, plan: Plan, rng: Random) -> None:
        if plan.upgrade_from is not None:
            for member in self.service.members:
                await self._inject(UPGRADE, Target(self.service, self.watch, member))
                await repeat_some(self.town)
        until = trio.current_time() + plan.minutes * 60
        for fault in plan.faults(self.outcome.arrangement, rng):
            if trio.current_time() >= until or plan.ends.is_set():
                return
            await trio.sleep(rng.uniform(*BETWEEN_S))
            await self._inject(fault, Target(self.service, self.watch, rng.choice(self.service.members)))
            await repeat_some(self.town)

    async def _inject(self, fault: Fault, target: Target) -> None:
        if fault.is_planned:
            with trio.fail_after(BALANCED_WITHIN_S):
                await self.service.until_balanced()
        began, statuses, exits = trio.current_time(), self.answers.statuses.copy(), len(self.service.exits)
        lost, slow, silent = self._lost(), len(self.answers.slow), len(self.watch.timeouts)
        owners = await self.service.owners() if fault.is_planned else {}
        await fault.inject(target)
        recovered_s = await self._recover()
        sessions = self.watch.sessions
        if fault.is_planned:
            now = await self.service.owners()
            sessions = [each for each in sessions if owners[shard_of(each)] != now[shard_of(each)]]
        pauses = self.watch.pauses(began, sessions)
        counts = self.answers.since(statuses)
        if fault.is_planned and (wrong := {status for status in counts if status >= 500 and status != 503}):
            self.outcome.violations.append(f"{fault.name}: answered {_counts(counts)}, and {wrong} are not allowed")
        self.outcome.injected.append(Injected(fault.name, pauses, recovered_s, counts, self._lost() - lost))
        where = f"{self.outcome.arrangement.value}: {fault.name}, server {target.member.number}"
        for answer in self.answers.slow[slow:] + self.watch.timeouts[silent:]:
            _say(f"  slow: {answer}")
        for ended in self.service.exits[exits:]:
            _say(f"  {ended}")
            if not (fault.may_end and f"exit code {EXIT_FENCED} " in ended):
                self.outcome.violations.append(f"{fault.name}: {ended}")
        if recovered_s is None:
            reason = await self.service.unready() or "a whole session did not work"
            self.outcome.violations.append(f"{fault.name}: not recovered within {RECOVERY_S:.0f} s: {reason}")
            _say(self.service.logs())
            raise RuntimeError(f"{where}: not recovered: {reason}")
        _say(
            f"{where}: {len(pauses)} pauses, median {median(pauses):.2f} s, worst {pauses[-1]:.2f} s; "
            f"whole {recovered_s:.1f} s after; answers {_counts(counts)}"
        )

    def _lost(self) -> int:
        return sum(made.lost for made in self.town.stage.history.made)

    async def _recover(self) -> float | None:
        """Seconds until every server is ready, every session answers and a whole session works; None after a limit."""
        began = trio.current_time()
        with trio.move_on_after(RECOVERY_S):
            await self._until_ready()
            await self.watch.until_all_answered(began)
            await self.probe.whole_session()
            await self._until_ready()
            return trio.current_time() - began
        return None

    async def _until_ready(self) -> None:
        while await self.service.unready() is not None:
            await self.service.restart_ended()
            await trio.sleep(0.1)


def report(outcomes: list[Outcome], plan: Plan) -> tuple[str, bool]:
    """Return the table as text, and whether all checks passed."""
    wrong = [f"{one.arrangement.value}: {text}" for one in outcomes for text in one.violations]
    head = f"{'pause median':>12} {'p99':>6} {'worst':>6} {'whole median':>12} {'worst':>6}"
    head += f" {'unknown':>7} {'503':>5} {'504':>4}"
    lines = [f"{'where':8} {'fault':44} {'rounds':>6} {head}"]
    for one in outcomes:
        for name in sorted({injected.name for injected in one.injected}):
            those = [injected for injected in one.injected if injected.name == name]
            pauses = sorted(pause for injected in those for pause in injected.pauses_s)
            whole = sorted(injected.recovered_s or RECOVERY_S for injected in those)
            lines.append(
                f"{one.arrangement.value:8} {name:44} {len(those):6} {median(pauses):12.2f} "
                f"{pauses[int(len(pauses) * 0.99)]:6.2f} {pauses[-1]:6.2f} {median(whole):12.1f} {whole[-1]:6.1f} "
                f"{sum(each.unknown for each in those):7} {sum(each.answers[503] for each in those):5} "
                f"{sum(each.answers[504] for each in those):4}"
            )
        lines.append(f"{one.arrangement.value}: {one.load}; servers that ended by themselves: {len(one.exits)}")
    lines += [f"VIOLATION {text}" for text in wrong]
    only = f" only='{plan.only}'" if plan.only else ""
    only += f" upgrade_from={plan.upgrade_from}" if plan.upgrade_from else ""
    again = f"make cluster-soak minutes={plan.minutes:g} rounds={plan.rounds} seed={plan.seed}{only}"
    lines.append(f"{'FAILED' if wrong else 'HELD'}; to repeat: {again}")
    return "\n".join(lines), not wrong


async def run_all(plan: Plan, arrangements: list[Arrangement]) -> bool:
    """Run every arrangement and print the table. Returns whether all checks passed.

    SIGINT (Ctrl-C) ends the faults; the history is checked all the same. A second one ends the run at once.
    """
    outcomes: list[Outcome] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_end_at_ctrl_c, plan)
        await _run_arrangements(plan, arrangements, outcomes)
        nursery.cancel_scope.cancel()
    text, held = report(outcomes, plan)
    _say(text)
    return held


async def _end_at_ctrl_c(plan: Plan) -> None:
    with trio.open_signal_receiver(signal.SIGINT) as signals:
        await anext(aiter(signals))
    _say("no further faults; the history is checked after this one")
    plan.ends.set()


async def _run_arrangements(plan: Plan, arrangements: list[Arrangement], outcomes: list[Outcome]) -> None:
    for arrangement in arrangements:
        if plan.ends.is_set():
            return
        outcome = Outcome(arrangement)
        outcomes.append(outcome)
        try:
            await run(outcome, plan)
        except Exception:  # noqa: BLE001  the table is printed after any failure
            outcome.violations.append(f"the run did not reach its end:\n{traceback.format_exc()}")


def _counts(statuses: Counter[int]) -> str:
    return ", ".join(f"{status}: {count}" for status, count in sorted(statuses.items()))


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
