"""Push subscriptions: browsers that are told of the jobs of the caller's workspace."""

from typing import Final, final

from sightline.domain.access import Operation
from sightline.domain.refusal import Code
from sightline.http.budgets import RateClass
from sightline.http.pipeline.call import Call, Reply
from sightline.http.pipeline.idempotency import Idempotency
from sightline.http.pipeline.routes import Route
from sightline.http.schemas.webhooks import CreatePushBody, PushSubscription, PushSubscriptionList, push_json
from sightline.http.services import Services

TAG: Final = "webhooks"
_PATH: Final = "/api/v1/push-subscriptions"


@final
class PushResources:
    """/push-subscriptions. For operators only: others are never assigned a job."""

    def __init__(self, services: Services, idempotency: Idempotency) -> None:
        self._subscriptions = services.push_subscriptions
        self._broker = services.broker
        self._idempotency = idempotency

    @Route(
        "POST",
        _PATH,
        "createPushSubscription",
        TAG,
        "Tell a browser of jobs by Web Push, also while the console is closed",
        description="A subscription with the same endpoint is renewed. At most 20 per workspace.",
        operation=Operation.RECEIVE_PUSHES,
        body=CreatePushBody,
        output=PushSubscription,
        errors=(Code.NOT_OPERATOR, Code.CONFLICT),
    )
    async def create(self, call: Call) -> Reply:
        """Add or renew."""
        body: CreatePushBody = call.body
        await self._broker.reads.require_operator(call.workspace_id)

        async def create() -> Reply:
            assert call.principal is not None
            added = await self._subscriptions.add(
                call.principal, endpoint=body.endpoint, p256dh=body.keys.p256dh, auth=body.keys.auth
            )
            return Reply(push_json(added))

        return await self._idempotency.recorded(call.caller().idempotency, create)

    @Route(
        "GET",
        _PATH,
        "listPushSubscriptions",
        TAG,
        "List push subscriptions, with the key that browsers subscribe with",
        operation=Operation.RECEIVE_PUSHES,
        rate=RateClass.LIST,
        output=PushSubscriptionList,
        errors=(Code.NOT_OPERATOR,),
    )
    async def list(self, call: Call) -> Reply:
        """All subscriptions: few, hence one page."""
        await self._broker.reads.require_operator(call.workspace_id)
        items = [push_json(each) for each in await self._subscriptions.list(call.workspace_id)]
        return Reply({"items": items, "nextCursor": None, "serverKey": self._subscriptions.public_key})

    @Route(
        "DELETE",
        _PATH + "/{id}",
        "deletePushSubscription",
        TAG,
        "Tell a browser of no further job",
        operation=Operation.RECEIVE_PUSHES,
        output=PushSubscription,
        errors=(Code.NOT_OPERATOR, Code.NOT_FOUND, Code.CONFLICT),
    )
    async def delete(self, call: Call) -> Reply:
        """Delete; answers with the subscription as it was."""
        await self._broker.reads.require_operator(call.workspace_id)

        async def delete() -> Reply:
            return Reply(push_json(await self._subscriptions.remove(call.workspace_id, call.params["id"])))

        return await self._idempotency.recorded(call.caller().idempotency, delete)
