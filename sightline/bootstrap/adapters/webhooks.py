"""Build the customers' webhooks and Web Push: the services that HTTP calls, and those that deliver."""

import random  # noqa: TID251  (jitter of retries only; seeded from the system's random source)
from collections.abc import Iterator
from functools import partial
from typing import final

from sightline.bootstrap.options.actors import actor_limits
from sightline.config import Settings
from sightline.domain.value import Value, replace
from sightline.http.metrics import MetricFamily
from sightline.http.schemas.webhooks import message_body
from sightline.identity.oauth.clients import DOCUMENT_BYTES_MAX
from sightline.ports.clock import Clock
from sightline.ports.ids import Ids
from sightline.storage.database.bridge import Database
from sightline.storage.postgres.webhooks.pushes import PostgresPushes
from sightline.storage.postgres.webhooks.queues import PostgresSendQueues
from sightline.storage.postgres.webhooks.store import PostgresWebhooks
from sightline.system.secrets import Secrets
from sightline.webhooks.delivery import DeliveryOptions, WebhookDispatcher
from sightline.webhooks.documents import PublicDocuments
from sightline.webhooks.http_client import WebhookClient, WebhookClientOptions
from sightline.webhooks.push_encryption import Vapid, key_from
from sightline.webhooks.pushes import TIMEOUT_S as PUSH_TIMEOUT_S
from sightline.webhooks.pushes import PushDispatcher, PushSubscriptions
from sightline.webhooks.sends import UnsentWatch
from sightline.webhooks.service import WebhookEndpoints
from sightline.webhooks.signing import WebhookSigner


@final
class Webhooks(Value, kw_only=True):
    """The parts of the webhooks."""

    endpoints: WebhookEndpoints
    dispatcher: WebhookDispatcher
    documents: PublicDocuments
    push_subscriptions: PushSubscriptions
    pushes: PushDispatcher
    watch: UnsentWatch


def make_webhooks(settings: Settings, secrets: Secrets, database: Database, clock: Clock, ids: Ids) -> Webhooks:
    """Create the parts of the webhooks and of Web Push. Run `dispatcher`, `pushes` and `watch` for deliveries."""
    store, signer = PostgresWebhooks(database), WebhookSigner(secrets.customer_webhook_key)
    render = partial(message_body, limits=actor_limits(settings).session)
    options = WebhookClientOptions(allows_loopback=settings.webhook_allow_loopback)
    client = WebhookClient(clock, options)
    allows_loopback, push_store = settings.webhook_allow_loopback, PostgresPushes(database)
    vapid = Vapid(key_from(secrets.push_seed), settings.push_contact_url)
    pushes = PushDispatcher(
        push_store,
        WebhookClient(clock, replace(options, timeout_s=PUSH_TIMEOUT_S, user_agent="Sightline-Push/1")),
        vapid,
        clock=clock,
        ids=ids,
    )
    dispatcher = WebhookDispatcher(
        store,
        client,
        signer,
        render,
        clock=clock,
        ids=ids,
        rng=random.Random(ids.token_bytes(16)),  # noqa: S311  (jitter of retries, never a secret)
        options=DeliveryOptions(retry_seconds=settings.webhook_retry_seconds),
    )
    return Webhooks(
        documents=PublicDocuments(options, bytes_max=DOCUMENT_BYTES_MAX),
        endpoints=WebhookEndpoints(store, signer, render, clock, ids, allows_loopback=allows_loopback),
        push_subscriptions=PushSubscriptions(push_store, vapid, clock, ids, allows_loopback=allows_loopback),
        pushes=pushes,
        dispatcher=dispatcher,
        watch=UnsentWatch(PostgresSendQueues(database), webhooks=dispatcher.wake, pushes=pushes.wake),
    )


def webhook_metrics(webhooks: Webhooks) -> Iterator[MetricFamily]:
    """Attempts since the start, and on the server that delivers the backlog as last read (every 15 s)."""
    counts = webhooks.dispatcher.statistics
    yield MetricFamily(
        "webhook_attempts_total", "Delivery attempts since the start, by result",
        {("delivered",): counts.delivered, ("failed",): counts.failed}, ("result",), is_counter=True,
    )  # fmt: skip
    yield MetricFamily(
        "webhook_deliveries_given_up_total", "Deliveries whose last attempt failed", counts.given_up, is_counter=True
    )
    yield MetricFamily(
        "webhook_endpoints_disabled_by_answers_total", "Endpoints disabled because of their answers", counts.disabled,
        is_counter=True,
    )  # fmt: skip
    pushes = webhooks.pushes.statistics
    yield MetricFamily(
        "push_attempts_total", "Attempts to send a Web Push since the start, by result",
        {("delivered",): pushes.delivered, ("failed",): pushes.failed}, ("result",), is_counter=True,
    )  # fmt: skip
    yield MetricFamily(
        "pushes_given_up_total", "Pushes that were refused, or too old for another attempt", pushes.given_up,
        is_counter=True,
    )  # fmt: skip
    yield MetricFamily(
        "push_subscriptions_removed_total", "Subscriptions that their push service or the server ended", pushes.removed,
        is_counter=True,
    )  # fmt: skip
    backlog = counts.backlog
    if backlog is None:
        return
    yield MetricFamily(
        "webhook_backlog", "Events not prepared (outbox), and deliveries that wait (pending)",
        {("outbox",): backlog.outbox, ("pending",): backlog.pending}, ("stage",),
    )  # fmt: skip
    yield MetricFamily(
        "webhook_backlog_oldest_seconds", "Age of the oldest event without an attempt", backlog.oldest_age_ms / 1_000
    )
    yield MetricFamily(
        "webhook_endpoints", "Endpoints by state",
        {
            ("all",): backlog.endpoints,
            ("failing",): backlog.endpoints_failing,
            ("disabled",): backlog.endpoints_disabled,
        },
        ("state",),
    )  # fmt: skip
