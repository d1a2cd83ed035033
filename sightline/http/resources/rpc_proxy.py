"""The chain's JSON-RPC endpoint, where the node itself is not for everybody: reads and raw transactions only."""

from typing import final

from sightline.http.budgets import RateClass
from sightline.http.pipeline.call import Call, Raw
from sightline.http.pipeline.rate_limit import address_key
from sightline.http.pipeline.routes import Route
from sightline.http.services import RpcEndpoint


@final
class _Guest:
    """The caller's address with its budget of the embedded chain's CPU time."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self.key = address_key(call.client_ip)

    def admit(self) -> None:
        self._call.limit_rate(RateClass.CHAIN, self.key)

    def charge(self, cpu_ms: int) -> None:
        self._call.charge_rate(RateClass.CHAIN, self.key, cpu_ms)


@final
class RpcProxyResource:
    """POST /rpc."""

    def __init__(self, endpoint: RpcEndpoint) -> None:
        self._endpoint = endpoint

    @Route(
        "POST",
        "/rpc",
        "rpc",
        "service",
        "JSON-RPC of the chain",
        raw_body=("application/json",),
        checks_origin=False,
        is_documented=False,
    )
    async def forward(self, call: Call) -> Raw:
        """Forward the body; the answer is JSON-RPC's, not the envelope."""
        body = await self._endpoint(call.raw_body, _Guest(call))
        return Raw(headers=(("content-type", "application/json"),), body=body)
