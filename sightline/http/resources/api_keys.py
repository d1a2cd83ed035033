"""API keys: minted, listed and revoked by people, never by keys."""

from typing import Final, final

from sightline.actors.types import Answer
from sightline.domain.access import Operation, WalletPrincipal
from sightline.domain.addresses import shown_address
from sightline.domain.refusal import Code
from sightline.domain.views import View, iso, iso_or_none
from sightline.http.deps import Deps
from sightline.http.pipeline.call import Call
from sightline.http.pipeline.idempotency import Once
from sightline.http.pipeline.rate_limit import RateClass
from sightline.http.pipeline.routes import Link, Route
from sightline.http.resources.own_workspace import require_own_workspace
from sightline.http.schemas.workspaces import ApiKey, ApiKeyList, MintedKey, MintKeyBody
from sightline.ports.identity import ApiKeyRecord

TAG: Final = "api keys"
_PATH: Final = "/api/v1/workspaces/{id}/api-keys"


def key_view(record: ApiKeyRecord) -> View:
    """A key's record as it is shown."""
    return {
        "keyId": record.key_id,
        "workspaceId": record.workspace_id,
        "label": record.label,
        "prefix": record.prefix,
        "environment": record.environment.value,
        "scopes": sorted(scope.value for scope in record.scopes),
        "createdAt": iso(record.created_at_ms),
        "createdByWallet": shown_address(record.created_by_wallet),
        "lastUsedAt": iso_or_none(record.last_used_at_ms),
        "revokedAt": iso_or_none(record.revoked_at_ms),
        "gracePeriodEnd": iso_or_none(record.grace_ends_at_ms),
    }


@final
class ApiKeyResources:
    """/workspaces/{id}/api-keys."""

    def __init__(self, deps: Deps, once: Once) -> None:
        self._deps = deps
        self._once = once

    def routes(self) -> tuple[Route, ...]:
        """The calls of this resource."""
        return (
            Route(
                method="GET",
                path=_PATH,
                operation_id="listApiKeys",
                tag=TAG,
                summary="List keys, revoked ones too",
                handler=self.list,
                operation=Operation.LIST_API_KEYS,
                rate=RateClass.LIST,
                output=ApiKeyList,
                errors=(Code.NOT_FOUND,),
            ),
            Route(
                method="POST",
                path=_PATH,
                operation_id="mintApiKey",
                tag=TAG,
                summary="Mint a key; its plaintext is shown once",
                handler=self.mint,
                operation=Operation.MINT_API_KEY,
                body=MintKeyBody,
                output=MintedKey,
                errors=(Code.NOT_FOUND, Code.CONFLICT),
                links=(
                    Link(
                        "revokeApiKey",
                        {"id": "$response.body#/data/workspaceId", "keyId": "$response.body#/data/keyId"},
                    ),
                ),
            ),
            Route(
                method="POST",
                path=_PATH + "/{keyId}/revoke",
                operation_id="revokeApiKey",
                tag=TAG,
                summary="Revoke a key; it works for 60 more seconds",
                handler=self.revoke,
                operation=Operation.REVOKE_API_KEY,
                output=ApiKey,
                errors=(Code.NOT_FOUND, Code.CONFLICT),
            ),
        )

    async def list(self, call: Call) -> Answer:
        """All keys: few, hence one page."""
        records = await self._deps.api_keys.keys_in(await require_own_workspace(call, self._deps.broker))
        data = {"items": [key_view(record) for record in records], "nextCursor": None}
        return Answer(data, self._deps.clock.now_ms())

    async def mint(self, call: Call) -> Answer:
        """Mint. The answer is never kept, so a repeat with the same idempotency key is refused."""
        body: MintKeyBody = call.body
        workspace_id = await require_own_workspace(call, self._deps.broker)
        principal = call.principal
        assert isinstance(principal, WalletPrincipal)

        async def mint() -> Answer:
            minted = await self._deps.api_keys.mint(
                workspace_id,
                created_by=principal.wallet_address,
                label=body.label,
                environment=body.environment,
                scopes=body.scopes,
            )
            return Answer(key_view(minted.record) | {"plaintext": minted.plaintext}, self._deps.clock.now_ms())

        return await self._once.unrepeated(call.caller().idempotency, mint)

    async def revoke(self, call: Call) -> Answer:
        """Revoke; a second time answers the same."""
        workspace_id = await require_own_workspace(call, self._deps.broker)

        async def revoke() -> Answer:
            record = await self._deps.api_keys.revoke(workspace_id, call.params["keyId"])
            return Answer(key_view(record), self._deps.clock.now_ms())

        return await self._once.recorded(call.caller().idempotency, revoke)
