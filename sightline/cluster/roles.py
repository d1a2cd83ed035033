"""Runs the work of a role exactly while this server owns the role."""

from collections.abc import Awaitable, Callable, Mapping
from typing import NoReturn, final

import structlog
import trio

from sightline.actors.shards import OwnedShards
from sightline.domain.value import Value
from sightline.ports.leases import ServerRole
from sightline.ports.store import ShardLease

log = structlog.get_logger("sightline.roles")


@final
class RoleWork(Value, kw_only=True):
    """What a server does while it owns a role."""

    run: Callable[[], Awaitable[object]]
    """Runs until cancelled, and keeps nothing in memory from one call to the next. An exception ends the server."""
    bind: Callable[[ShardLease], None] | None = None
    """Called with the lease before each run: writes under it are refused after another server has taken the role. None:
    the work may run on two servers at once."""


async def run_roles(owned: OwnedShards, works: Mapping[ServerRole, RoleWork]) -> None:
    """Run the work of each role while this server owns the role, until cancelled.

    The work is cancelled when the role is lost. It starts again, under the new epoch, when the role was taken again and
    the cancelled work has ended.
    """
    async with trio.open_nursery() as nursery:
        for role, work in works.items():
            nursery.start_soon(_run_role, owned, role, work)


async def _run_role(owned: OwnedShards, role: ServerRole, work: RoleWork) -> NoReturn:
    while True:
        while (lease := owned.role_lease(role)) is None:
            await owned.wait_changed()
        if work.bind is not None:
            work.bind(lease)
        log.info("role_started", role=role.name, epoch=lease.epoch)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(work.run)
            while owned.role_lease(role) == lease:
                await owned.wait_changed()
            nursery.cancel_scope.cancel()
        log.info("role_ended", role=role.name, epoch=lease.epoch)
