"""API keys: minted, listed and revoked by people, never by keys."""

from functools import partial
from typing import Final, final

from sightline.domain.access import Operation, WalletPrincipal
from sightline.domain.refusal import Code
from sightline.http.audit import Act, actor_of
from sightline.http.budgets import RateClass
from sightline.http.pipeline.call import Call, Reply
from sightline.http.pipeline.idempotency import Idempotency
from sightline.http.pipeline.routes import Link, Route
from sightline.http.resources.own_workspace import require_own_workspace
from sightline.http.schemas.workspaces import ApiKey, ApiKeyList, MintedKey, MintKeyBody, api_key_json
from sightline.http.services import Services
from sightline.ports.administration import AuditAction
from sightline.ports.store import IdempotencyRecord

TAG: Final = "api keys"
_PATH: Final = "/api/v1/workspaces/{id}/api-keys"


@final
class ApiKeyResources:
    """/workspaces/{id}/api-keys."""

    def __init__(self, services: Services, idempotency: Idempotency) -> None:
        self._services = services
        self._idempotency = idempotency

    @Route(
        "GET",
        _PATH,
        "listApiKeys",
        TAG,
        "List keys, revoked ones too",
        operation=Operation.LIST_API_KEYS,
        rate=RateClass.LIST,
        output=ApiKeyList,
        errors=(Code.NOT_FOUND,),
    )
    async def list(self, call: Call) -> Reply:
        """All keys: few, hence one page."""
        records = await self._services.api_keys.keys_in(await require_own_workspace(call, self._services.broker))
        return Reply({"items": [api_key_json(record) for record in records], "nextCursor": None})

    @Route(
        "POST",
        _PATH,
        "mintApiKey",
        TAG,
        "Mint a key; its plaintext is shown once",
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
    )
    async def mint(self, call: Call) -> Reply:
        """Mint. The answer is never kept, so a repeat with the same idempotency key is refused."""
        body: MintKeyBody = call.body
        workspace_id = await require_own_workspace(call, self._services.broker)
        principal = call.principal
        assert isinstance(principal, WalletPrincipal)

        async def mint(record: IdempotencyRecord | None) -> Reply:
            minted = await self._services.api_keys.mint(
                workspace_id,
                created_by=principal.wallet_address,
                label=body.label,
                environment=body.environment,
                scopes=body.scopes,
                limits=None if body.limits is None else body.limits.to_domain(),
                call=record,
            )
            return Reply(api_key_json(minted.record) | {"plaintext": minted.plaintext})

        act = Act(actor_of(principal), AuditAction.KEY_MINT, f"workspace {workspace_id}", body.label)
        return await self._idempotency.once(
            call.caller().idempotency, lambda record: self._services.audit.record(act, partial(mint, record))
        )

    @Route(
        "POST",
        _PATH + "/{keyId}/revoke",
        "revokeApiKey",
        TAG,
        "Revoke a key; it works for 60 more seconds",
        operation=Operation.REVOKE_API_KEY,
        output=ApiKey,
        errors=(Code.NOT_FOUND, Code.CONFLICT),
    )
    async def revoke(self, call: Call) -> Reply:
        """Revoke; a second time answers the same."""
        workspace_id = await require_own_workspace(call, self._services.broker)

        key_id = call.params["keyId"]

        async def revoke() -> Reply:
            return Reply(api_key_json(await self._services.api_keys.revoke(workspace_id, key_id)))

        act = Act(actor_of(call.principal), AuditAction.KEY_REVOKE, f"workspace {workspace_id}", f"key {key_id}")
        return await self._idempotency.recorded(
            call.caller().idempotency, lambda: self._services.audit.record(act, revoke)
        )

    @Route(
        "POST",
        _PATH + "/{keyId}/keep",
        "keepApiKey",
        TAG,
        "Take back a revocation during its 60 seconds",
        description="INVALID_STATE `apiKey:revoked` after them. A key that is not revoked stays as it is.",
        operation=Operation.KEEP_API_KEY,
        output=ApiKey,
        errors=(Code.NOT_FOUND, Code.CONFLICT, Code.INVALID_STATE),
    )
    async def keep(self, call: Call) -> Reply:
        """Keep a key that was just revoked."""
        workspace_id = await require_own_workspace(call, self._services.broker)
        key_id = call.params["keyId"]

        async def keep() -> Reply:
            return Reply(api_key_json(await self._services.api_keys.keep(workspace_id, key_id)))

        act = Act(actor_of(call.principal), AuditAction.KEY_KEEP, f"workspace {workspace_id}", f"key {key_id}")
        return await self._idempotency.recorded(
            call.caller().idempotency, lambda: self._services.audit.record(act, keep)
        )
