"""The chain's JSON-RPC endpoint, where the node itself is not for everybody: reads and raw transactions only."""

from typing import final

from sightline.http.deps import RpcEndpoint
from sightline.http.pipeline.call import Call, Raw
from sightline.http.pipeline.routes import Route


@final
class RpcProxyResource:
    """POST /rpc."""

    def __init__(self, endpoint: RpcEndpoint) -> None:
        self._endpoint = endpoint

    def routes(self) -> tuple[Route, ...]:
        """The one call."""
        return (
            Route(
                method="POST",
                path="/rpc",
                operation_id="rpc",
                tag="service",
                summary="JSON-RPC of the chain",
                handler=self.forward,
                raw_body=("application/json",),
                checks_origin=False,
                is_documented=False,
            ),
        )

    async def forward(self, call: Call) -> Raw:
        """Forward the body; the answer is JSON-RPC's, not the envelope."""
        body = await self._endpoint(call.raw_body)
        return Raw(headers=(("content-type", "application/json"),), body=body)
