"""The faults. Each function injects one and returns when its cause is removed.

A server that ended is started again as its supervisor would. Every other server must survive.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

import psutil
import trio

from tests.cluster.nemesis.link import Link, Way
from tests.cluster.nemesis.system import Arrangement, Member, Service
from tests.cluster.nemesis.watch import Watch

BOTH: Final = frozenset(Arrangement)
SERVERS: Final = frozenset({Arrangement.SERVERS})
WORKERS: Final = frozenset({Arrangement.WORKERS})
NOTICED_S: Final = 1.0
"""After how long callers stop using a server that does not answer."""
LOST_S: Final = 30.0


@dataclass
class Target:
    """What a fault is injected into."""

    service: Service
    watch: Watch
    member: Member
    """The server that it concerns, if it concerns one."""


Inject: TypeAlias = Callable[[Target], Awaitable[None]]


@dataclass(frozen=True)
class Fault:
    """One kind of fault."""

    name: str
    inject: Inject
    where: frozenset[Arrangement] = BOTH
    may_end: bool = False
    """Whether a server may end with the exit code that says that another one took its shards."""


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
    target.service.kill_nats()


async def kill_postgres(target: Target) -> None:
    """Kill Postgres by SIGKILL; it is started again."""
    target.service.kill_postgres()


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
    await trio.sleep(seconds - NOTICED_S)
    link.unblock()
    target.member.is_door = True


async def reset(to: str, target: Target) -> None:
    """Reset every connection, ten times in 5 s."""
    for _ in range(10):
        _link(target, to).reset()
        await trio.sleep(0.5)


async def slow(to: str, target: Target) -> None:
    """Delay each answer by 200 ms for 8 s."""
    link = _link(target, to)
    link.delay_s = 0.2
    await trio.sleep(8)
    link.delay_s = 0.0


FAULTS: Final = (
    Fault("server kill -9, restarted at once", kill_and_restart, SERVERS),
    Fault("server kill -9, others take over", lose_server, SERVERS),
    Fault("worker kill -9", kill_worker, WORKERS),
    Fault("server SIGTERM and start", replace_server, SERVERS),
    *(Fault(f"server SIGSTOP {each} s", partial(suspend_server, each), may_end=each > 4) for each in (1, 4, 8, 30)),
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
            "latency 200 ms": partial(slow, to),
        }.items()
    ),
)
