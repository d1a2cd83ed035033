"""Public reads: is it alive, and which chain does it settle on."""

from typing import Final, final

from sightline.actors.types import Answer
from sightline.http.deps import Deps
from sightline.http.pipeline.call import Call
from sightline.http.pipeline.routes import Route
from sightline.http.schemas.money import ChainConfig, Health

VERSION: Final = "v1"


@final
class HealthAndConfig:
    """GET /health, GET /config."""

    def __init__(self, deps: Deps) -> None:
        self._deps = deps

    def routes(self) -> tuple[Route, ...]:
        """The calls of this resource."""
        return (
            Route(
                method="GET",
                path="/api/v1/health",
                operation_id="getHealth",
                tag="service",
                summary="Health probe",
                handler=self.health,
                output=Health,
            ),
            Route(
                method="GET",
                path="/api/v1/config",
                operation_id="getConfig",
                tag="service",
                summary="The chain and its contracts",
                handler=self.config,
                output=ChainConfig,
            ),
        )

    async def health(self, _call: Call) -> Answer:
        """Alive, whatever the parts behind do; readiness is asked on the internal listener."""
        data = {
            "ok": True,
            "surface": "public",
            "version": VERSION,
            "buildSha": self._deps.options.build_sha,
        }
        return Answer(data, self._deps.clock.now_ms())

    async def config(self, call: Call) -> Answer:
        """What a client needs to drive a wallet. A private node is reached through `/rpc` of this very server."""
        chain = self._deps.chain
        data = {
            "environment": chain.environment,
            "chainId": chain.chain_id,
            "chainName": chain.chain_name,
            "rpcUrl": f"{call.base_url}/rpc" if chain.rpc_is_private else chain.rpc_url,
            "explorerUrl": chain.explorer_url,
            "usdcAddress": chain.usdc_address,
            "settlementAddress": chain.settlement_address,
        }
        return Answer(data, self._deps.clock.now_ms())
