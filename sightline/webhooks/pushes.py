"""Tells operators of their jobs by Web Push (RFC 8030): subscriptions of browsers, and the service that sends."""

import re
from base64 import urlsafe_b64decode
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias, final

import orjson
import structlog
from msgspec import Struct

from sightline.domain.access import ApiKeyPrincipal, Principal, WalletPrincipal
from sightline.domain.errors import OutcomeUnknownError, RefusedError, UnavailableError
from sightline.domain.refusal import Code, Refusal
from sightline.domain.session.model import Session
from sightline.domain.units import SECOND_MS
from sightline.ports.clock import Clock
from sightline.ports.ids import Ids
from sightline.ports.webhooks import PushJob, PushStore, PushSubscription
from sightline.webhooks.addresses import check_url
from sightline.webhooks.http_client import SendOutcome, WebhookClient
from sightline.webhooks.push_encryption import (
    AUTH_BYTES,
    SALT_BYTES,
    SCALAR_BYTES,
    Vapid,
    encrypt,
    is_point,
    key_from,
)
from sightline.webhooks.sends import Sends

log = structlog.get_logger("sightline.pushes")

SUBSCRIPTIONS_MAX: Final = 20
"""Browsers of one workspace."""
IN_FLIGHT_MAX: Final = 64
TIMEOUT_S: Final = 10.0
"""Of one attempt. Less than the lease of a claim."""
RETRY_MS: Final = (1_000, 2_000, 4_000, 8_000, 16_000)
"""Waits after failed attempts; the last one is repeated until the push is too old."""
PLACE_DECIMALS: Final = 2
"""About a kilometre: a locked phone shows a notification to whoever looks at it."""
_BASE64URL: Final = re.compile(r"[A-Za-z0-9_-]*", re.ASCII)

NO_SUBSCRIPTION: Final = Refusal(Code.NOT_FOUND, "push:notFound", "No such push subscription")
BAD_KEYS: Final = Refusal(
    Code.INVALID_INPUT, "push:keys", "keys must be those of the browser's PushSubscription, in base64url"
)
LIMIT: Final = Refusal(
    Code.CONFLICT, "push:limit", f"A workspace has at most {SUBSCRIPTIONS_MAX} push subscriptions; delete one first"
)

MayReceive: TypeAlias = Callable[[PushSubscription], Awaitable[bool]]
"""Whether the key or the member that allowed a subscription may still start sessions."""


@final
class PushSubscriptions:
    """What a workspace does with its push subscriptions."""

    def __init__(
        self, store: PushStore, vapid: Vapid, clock: Clock, ids: Ids, *, allows_loopback: bool = False
    ) -> None:
        """`allows_loopback` accepts URLs of this machine, also with http."""
        self._store = store
        self._clock = clock
        self._ids = ids
        self._allows_loopback = allows_loopback
        self.public_key = vapid.public_key

    async def add(self, principal: Principal, *, endpoint: str, p256dh: str, auth: str) -> PushSubscription:
        """Add the subscription of a browser, or renew it.

        Raises:
            RefusedError: INVALID_INPUT `push:endpoint` or `push:keys`, CONFLICT `push:limit`.
        """
        assert principal.workspace_id is not None
        refusal = check_url(endpoint, allows_loopback=self._allows_loopback)
        if refusal is not None:
            raise RefusedError(Refusal(Code.INVALID_INPUT, "push:endpoint", refusal.message))
        point, secret = _bytes_of(p256dh), _bytes_of(auth)
        if not is_point(point) or len(secret) != AUTH_BYTES:
            raise RefusedError(BAD_KEYS)
        subscription = PushSubscription(
            id=self._ids.uuid(),
            workspace_id=principal.workspace_id,
            endpoint=endpoint,
            p256dh=point,
            auth=secret,
            key_id=principal.key_id if isinstance(principal, ApiKeyPrincipal) else None,
            wallet=principal.wallet_address if isinstance(principal, WalletPrincipal) else None,
            renewed_at_ms=self._clock.now_ms(),
        )
        stored = await self._store.add_subscription(subscription, limit=SUBSCRIPTIONS_MAX)
        if stored is None:
            raise RefusedError(LIMIT)
        return stored

    async def list(self, workspace_id: str) -> Sequence[PushSubscription]:
        """The subscriptions of a workspace."""
        return await self._store.subscriptions(workspace_id)

    async def remove(self, workspace_id: str, subscription_id: str) -> PushSubscription:
        """Delete a subscription; returns it as it was.

        Raises:
            RefusedError: NOT_FOUND.
        """
        found = await self._store.remove_subscription(workspace_id, subscription_id)
        if found is None:
            raise RefusedError(NO_SUBSCRIPTION)
        return found


def _bytes_of(text: str) -> bytes:
    text = text.rstrip("=")
    if not _BASE64URL.fullmatch(text) or len(text) % 4 == 1:
        return b""
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def push_payload(session: Session) -> bytes:
    """What the service worker of the console shows: the id, the coarse place and the longest duration of a job."""
    terms = session.terms
    return orjson.dumps(
        {
            "sessionId": terms.id,
            "lat": round(terms.lat, PLACE_DECIMALS),
            "lng": round(terms.lng, PLACE_DECIMALS),
            "maxDurationSeconds": terms.max_duration_s,
        }
    )


@final
class PushStatistics(Struct):
    """Counts since the start of the server."""

    delivered: int = 0
    failed: int = 0
    """Attempts that failed."""
    given_up: int = 0
    """Pushes that were refused, or too old for another attempt."""
    removed: int = 0
    """Subscriptions that ended: the push service no longer knows them, or who allowed them may not receive jobs."""


@final
class PushDispatcher:
    """Sends pushes. At least once: a crash after the answer sends one again, which the browser shows in its place.

    Two on one database share the work: each push is claimed before it is sent.
    """

    def __init__(
        self,
        store: PushStore,
        client: WebhookClient,
        vapid: Vapid,
        *,
        clock: Clock,
        ids: Ids,
    ) -> None:
        """Prepare the service. Set `may_receive` before it runs."""
        self._store = store
        self._client = client
        self._vapid = vapid
        self._clock = clock
        self._ids = ids
        self._sends = Sends(self._send, client, most=IN_FLIGHT_MAX)
        self.may_receive: MayReceive = _nobody
        self.statistics = PushStatistics()
        self.wake = self._sends.wake
        """Called by `UnsentWatch` when a push is waiting."""

    async def run(self) -> None:
        """Send until cancelled; may be called again afterwards. See `Sends.run`."""
        await self._sends.run("pushes", self._round)

    async def _round(self) -> bool:
        jobs = await self._store.claim_pushes(limit=self._sends.free)
        self._sends.start(jobs)
        return bool(jobs)

    async def _send(self, job: PushJob) -> None:
        try:
            await self._attempt(job)
        except (UnavailableError, OutcomeUnknownError) as error:
            # Its claim expires, and it is sent again.
            log.warning("push_not_recorded", subscription_id=job.subscription.id, error=str(error))
        except Exception:
            # A defect. Its claim expires, and it is tried again until it is too old.
            log.exception("push_crashed", subscription_id=job.subscription.id)

    async def _attempt(self, job: PushJob) -> None:
        subscription = job.subscription
        if not await self.may_receive(subscription):
            await self._remove(subscription, "not_allowed")
            return
        outcome = await self._client.post(subscription.endpoint, self._headers(job), self._body(job))
        self.statistics.delivered += outcome.is_delivered
        self.statistics.failed += not outcome.is_delivered
        if outcome.is_delivered:
            await self._store.finish_push(job)
        elif outcome.status in {404, 410}:
            await self._remove(subscription, "gone")
        else:
            await self._record_failure(job, outcome)

    async def _record_failure(self, job: PushJob, outcome: SendOutcome) -> None:
        wait_ms = max(RETRY_MS[min(job.attempts, len(RETRY_MS) - 1)], (outcome.retry_after_s or 0) * SECOND_MS)
        if _may_pass(outcome) and wait_ms < job.left_ms:
            await self._store.retry_push(job, after_ms=wait_ms)
            return
        self.statistics.given_up += 1
        log.warning(
            "push_given_up",
            subscription_id=job.subscription.id,
            workspace_id=job.subscription.workspace_id,
            status=outcome.status,
            error=outcome.error,
        )
        await self._store.finish_push(job)

    async def _remove(self, subscription: PushSubscription, reason: str) -> None:
        await self._store.remove_subscription(subscription.workspace_id, subscription.id)
        self.statistics.removed += 1
        log.info(
            "push_subscription_removed",
            subscription_id=subscription.id,
            workspace_id=subscription.workspace_id,
            reason=reason,
        )

    def _headers(self, job: PushJob) -> dict[str, str]:
        return {
            "authorization": self._vapid.authorization(job.subscription.endpoint, self._clock.now_ms()),
            "content-encoding": "aes128gcm",
            "content-type": "application/octet-stream",
            "ttl": str(max(1, job.left_ms // SECOND_MS)),
            "urgency": "high",
            # A push service that still holds a push of this job replaces it. At most 32 characters of base64url.
            "topic": job.session.id.replace("-", ""),
        }

    def _body(self, job: PushJob) -> bytes:
        return encrypt(
            push_payload(job.session),
            browser_key=job.subscription.p256dh,
            auth=job.subscription.auth,
            sender=key_from(self._ids.token_bytes(SCALAR_BYTES)),
            salt=self._ids.token_bytes(SALT_BYTES),
        )


def _may_pass(outcome: SendOutcome) -> bool:
    """Whether another attempt can have another result: no answer, too many requests, an error of the push service."""
    if outcome.status is not None:
        return outcome.status in {408, 429} or outcome.status >= 500
    return outcome.error != "address_refused"


async def _nobody(_subscription: PushSubscription) -> bool:
    raise UnavailableError("the identity services have not started")
