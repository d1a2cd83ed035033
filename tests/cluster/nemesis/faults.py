"""The faults. Each function injects one and returns when its cause is removed.

A server that ended is started again as its supervisor would. Every other server must survive.
"""

from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

import httpx
import psutil
import trio

from sightline.domain.value import Value
from tests.cluster.nemesis.link import Link, Way
from tests.cluster.nemesis.system import Arrangement, Member, Service
from tests.cluster.nemesis.watch import Watch

BOTH: Final = frozenset(Arrangement)
SERVERS: Final = frozenset({Arrangement.SERVERS})
WORKERS: Final = frozenset({Arrangement.WORKERS})
NOTICED_S: Final = 1.0
"""After how long callers stop using a server that does not answer."""
LOST_S: Final = 30.0
CUT_OFF_S: Final = 7.0
"""After how long a server that is cut off is checked: what it has in memory is not valid any more."""
ANSWERED_S: Final = 4.0
"""Within how many seconds it answers."""


@dataclass
class Target:
    """What a fault is injected into."""

    service: Service
    watch: Watch
    member: Member
    """The server that it concerns, if it concerns one."""


Inject: TypeAlias = Callable[[Target], Awaitable[None]]


class Fault(Value):
    """One kind of fault."""

    name: str
    inject: Inject
    where: frozenset[Arrangement] = BOTH
    may_end: bool = False
    """Whether a server may end with the exit code that says that another one took its shards."""
    is_planned: bool = False
    """A planned stop of a server that owns its share of the shards. The pauses are those of the sessions that move, and
    5xx other than 503 are violations."""


# Faults of a server.


async def kill_and_restart(target: Target) -> None:
    """Kill a server by SIGKILL, and start it again at once on the same machine."""
    await target.service.kill(target.member)
    await target.service.restart(target.member)


async def lose_server(target: Target) -> None:
    """Kill a server by SIGKILL, and start it again when the others serve everything, as if a machine was lost."""
    began = trio.current_time()
    await target.service.kill(target.member)
    with trio.fail_after(LOST_S):
        await target.watch.until_all_answered(began)
    await target.service.restart(target.member)


async def kill_worker(target: Target) -> None:
    """Kill a worker by SIGKILL; its supervisor restarts it."""
    began = trio.current_time()
    await target.service.kill(target.member)
    with trio.fail_after(LOST_S):
        await target.watch.until_all_answered(began)


async def replace_server(target: Target) -> None:
    """Stop a server by SIGTERM and start it again, as a rolling upgrade does."""
    await target.service.stop(target.member)
    await target.service.restart(target.member)


async def upgrade_server(target: Target) -> None:
    """Replace a server of another version by one of this version."""
    await target.service.upgrade(target.member)


async def suspend_server(seconds: float, target: Target) -> None:
    """Suspend a server by SIGSTOP. Callers stop using it after a second, and use it again when it continues."""
    process, member = target.member.process(), target.member
    assert process is not None
    process.suspend()
    await trio.sleep(min(seconds, NOTICED_S))
    if seconds > NOTICED_S:
        member.is_door = False
        await trio.sleep(seconds - NOTICED_S)
    with suppress(psutil.NoSuchProcess):
        process.resume()
    member.is_door = True


# Faults of Postgres and NATS.


async def kill_nats(target: Target) -> None:
    """Kill the NATS server by SIGKILL; it is started again."""
    await target.service.kill_nats()


async def kill_postgres(target: Target) -> None:
    """Kill Postgres by SIGKILL; it is started again."""
    await target.service.kill_postgres()


# Faults of the network between one server and Postgres or NATS.


def _link(target: Target, to: str) -> Link:
    link = target.member.database if to == "postgres" else target.member.nats
    assert link is not None
    return link


async def block(to: str, ways: tuple[Way, ...], seconds: float, target: Target) -> None:
    """Let nothing pass in these directions, without closing a connection."""
    link = _link(target, to)
    link.block(*ways)
    await trio.sleep(NOTICED_S)
    # A load balancer stops using a server that is not ready.
    target.member.is_door = to != "postgres"
    await trio.sleep(CUT_OFF_S - NOTICED_S)
    if (wrong := await _check_cut_off(target, to)) is not None:
        said = f"server {target.member.number}, cut off from {to}: {wrong}"
        target.watch.consumer.stage.history.unexpected.append(said)
    await trio.sleep(max(0.0, seconds - CUT_OFF_S - ANSWERED_S))
    link.unblock()
    target.member.is_door = True


async def _check_cut_off(target: Target, to: str) -> str | None:
    """Return what is wrong with a server that cannot reach Postgres or NATS; None if it answers as documented."""
    member, seen = target.member, Counter[int]()
    headers = {"authorization": f"Bearer {target.watch.consumer.tenant.key}"}
    async with httpx.AsyncClient(headers=headers, timeout=ANSWERED_S) as http:

        async def read(session_id: str) -> None:
            try:
                seen[(await http.get(f"{member.server.url}/api/v1/sessions/{session_id}")).status_code] += 1
            except httpx.TransportError:
                seen[0] += 1

        try:
            health = (await http.get(f"{member.server.url}/api/v1/health")).status_code
            ready = (await http.get(f"{member.internal_url}/readyz")).status_code
        except httpx.TransportError as error:
            return f"health or readiness is not answered: {error!r}"
        async with trio.open_nursery() as nursery:
            for session_id in target.watch.sessions:
                nursery.start_soon(read, session_id)
    if health != 200 or (to == "postgres" and ready != 503):
        return f"health is answered {health}, readiness {ready}"
    return None if seen.keys() <= {200, 503} else f"reads were answered {dict(seen)} within {ANSWERED_S:g} s"


async def reset(to: str, target: Target) -> None:
    """Reset every connection, ten times in 5 s."""
    for _ in range(10):
        _link(target, to).reset()
        await trio.sleep(0.5)


async def slow(to: str, delay_s: float, target: Target) -> None:
    """Delay each answer for 8 s."""
    link = _link(target, to)
    link.delay_s = delay_s
    await trio.sleep(8)
    link.delay_s = 0.0


UPGRADE: Final = Fault("upgrade of a server", upgrade_server, SERVERS, is_planned=True)
FAULTS: Final = (
    Fault("server kill -9, restarted at once", kill_and_restart, SERVERS),
    Fault("server kill -9, others take over", lose_server, SERVERS),
    Fault("worker kill -9", kill_worker, WORKERS),
    Fault("server SIGTERM and start", replace_server, SERVERS, is_planned=True),
    *(Fault(f"server SIGSTOP {each} s", partial(suspend_server, each), may_end=each > 4) for each in (1, 4, 8, 20, 30)),
    Fault("nats kill -9", kill_nats),
    Fault("postgres kill -9", kill_postgres),
    *(
        Fault(f"{to} {name}", inject, SERVERS, may_end=to == "postgres")
        for to in ("postgres", "nats")
        for name, inject in {
            "black hole 12 s": partial(block, to, tuple(Way), 12.0),
            "one way cut 12 s, from the server": partial(block, to, (Way.OUT,), 12.0),
            "one way cut 12 s, to the server": partial(block, to, (Way.BACK,), 12.0),
            "reset": partial(reset, to),
            "latency 200 ms": partial(slow, to, 0.2),
            "latency 300 ms": partial(slow, to, 0.3),
        }.items()
    ),
)
