"""Runs the attacks of the catalogue against one server, and measures what a second tenant feels of the floods."""

import importlib
import sys
from pathlib import Path

import trio

from sightline.domain.value import Value
from tests.attack.catalogue import ATTACKS, Attack, Kind
from tests.attack.target import Latency, Target, honest_calls, open_target

ROWS = Path(__file__).parent / "rows"
for _module in sorted(ROWS.rglob("on_*.py")):  # each adds its attacks to the catalogue
    importlib.import_module(".".join(("tests.attack.rows", *_module.relative_to(ROWS).with_suffix("").parts)))

PATIENCE_S = 300
CALLS_MIN = 20
"""A flood that is over sooner is measured with some calls after it."""


class Load(Value, kw_only=True):
    """A flood as a second tenant and the machine felt it."""

    latency: Latency
    before_bytes: int
    grown_bytes: int


class Outcome(Value, kw_only=True):
    """Whether the server held, and what was observed. `load` is set for floods, `before` as in `Attack`."""

    finding: str
    title: str
    is_held: bool
    seen: str
    before: str = ""
    load: Load | None = None


async def run_all(directory: Path, only: str | None = None) -> list[Outcome]:
    """Run the attacks in the order of the catalogue, those that wait or have servers of their own beside the others."""
    wanted = [each for each in ATTACKS if only is None or only in each.finding or only in each.run.__name__]
    outcomes: dict[str, Outcome] = {}
    async with open_target(directory) as target:
        tenant = await target.tenant("CONSUMER")
        async with trio.open_nursery() as nursery:

            async def take(each: Attack) -> None:
                started = trio.current_time()
                found = outcomes[each.title] = await _outcome_of(each, target, tenant.key)
                word, seconds = "held" if found.is_held else "BROKEN", trio.current_time() - started
                sys.stderr.write(f"{word} after {seconds:.1f} s: {each.title}: {found.seen}\n")

            async def take_in_turn(kinds: set[Kind]) -> None:
                for each in wanted:
                    if each.kind in kinds:
                        await take(each)

            for each in wanted:
                if each.kind is Kind.WAIT:
                    nursery.start_soon(take, each)
            nursery.start_soon(take_in_turn, {Kind.APART})
            await take_in_turn({Kind.PROBE, Kind.FLOOD})
    return [outcomes[each.title] for each in wanted]


async def _outcome_of(each: Attack, target: Target, credential: str) -> Outcome:
    load = None
    try:
        with trio.fail_after(PATIENCE_S):
            if each.kind is Kind.FLOOD:
                before = target.memory_bytes()
                async with honest_calls(f"{target.url}/api/v1/me", credential) as latency:
                    seen = await each.run(target)
                    await latency.measured(CALLS_MIN)
                load = Load(latency=latency, before_bytes=before, grown_bytes=target.memory_bytes() - before)
            else:
                seen = await each.run(target)
    except Exception as raised:  # noqa: BLE001  any failure is an outcome for the table
        error: BaseException = raised
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        seen = f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
        return Outcome(finding=each.finding, title=each.title, is_held=False, seen=seen, before=each.before)
    return Outcome(finding=each.finding, title=each.title, is_held=True, seen=seen, before=each.before, load=load)
