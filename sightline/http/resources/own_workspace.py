"""The check that a path's workspace is the caller's own, in the order of the interface: 404 before 403."""

from sightline.actors.service.broker import Broker
from sightline.domain.access import bound_to
from sightline.domain.errors import RefusedError
from sightline.http.pipeline.call import Call


async def require_own_workspace(call: Call, broker: Broker, name: str = "id") -> str:
    """The id of the path's workspace, which is the caller's.

    Raises:
        RefusedError: NOT_FOUND where there is no such workspace, NOT_AUTHORIZED where it is another's.
    """
    workspace_id = call.params[name]
    assert call.principal is not None
    refusal = bound_to(call.principal, workspace_id)
    if refusal is not None:
        await broker.reads.read_workspace(workspace_id)
        raise RefusedError(refusal)
    return workspace_id
