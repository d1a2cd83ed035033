"""Public reads: health, the chain and its contracts, and the certificates of signed frames."""

from typing import Final, final

from sightline.http.pipeline.call import Call, Raw, Reply
from sightline.http.pipeline.routes import Route
from sightline.http.schemas.money import ChainConfig, Health
from sightline.http.services import Services

VERSION: Final = "v1"


@final
class HealthAndConfig:
    """GET /health, GET /config, and the certificates of signed frames."""

    def __init__(self, services: Services) -> None:
        self._services = services

    @Route("GET", "/api/v1/health", "getHealth", "service", "Health probe", output=Health)
    async def health(self, _call: Call) -> Reply:
        """Liveness: always 200 while the process serves. The internal listener has readiness."""
        data = {
            "ok": True,
            "surface": "public",
            "version": VERSION,
            "buildSha": self._services.options.build_sha,
        }
        return Reply(data)

    @Route("GET", "/api/v1/config", "getConfig", "service", "The chain and its contracts", output=ChainConfig)
    async def config(self, call: Call) -> Reply:
        """What a client needs to drive a wallet. A private node is reached through `/rpc` of this very server."""
        chain = self._services.chain
        data = {
            "environment": chain.environment,
            "chainId": chain.chain_id,
            "chainName": chain.chain_name,
            "rpcUrl": f"{call.base_url()}/rpc" if chain.rpc_is_private else chain.rpc_url,
            "explorerUrl": chain.explorer_url,
            "usdcAddress": chain.usdc_address,
            "settlementAddress": chain.settlement_address,
            "isEscrow": chain.is_escrow,
            "clipSeconds": self._services.options.clip_seconds,
            "frameSigning": self._services.options.frame_signing,
        }
        return Reply(data)

    @Route(
        "GET",
        "/.well-known/sightline-certificates.pem",
        "getCertificates",
        "service",
        "The certificates that verify signed frames",
        description="PEM: the certificate that signs frames now, then its issuers. The last one is the root to trust.",
        media_type="application/pem-certificate-chain",
    )
    async def certificates(self, _call: Call) -> Raw:
        """The signing certificate and its issuers."""
        headers = (("content-type", "application/pem-certificate-chain"), ("cache-control", "max-age=300"))
        return Raw(headers=headers, body=self._services.evidence.certificates())
