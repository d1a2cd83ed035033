"""Build the customers' webhooks: the service that HTTP calls, and the one that delivers."""

import random  # noqa: TID251  (jitter of retries only; seeded from the system's random source)
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import final

from sightline.config import Settings
from sightline.http.metrics import MetricFamily
from sightline.http.schemas.webhooks import message_body
from sightline.identity.oauth.clients import DOCUMENT_BYTES_MAX
from sightline.ports.clock import Clock
from sightline.ports.ids import Ids
from sightline.storage.database.bridge import Database
from sightline.storage.postgres.webhooks.store import PostgresWebhooks
from sightline.system.secrets import Secrets
from sightline.webhooks.delivery import DeliveryOptions, WebhookDispatcher
from sightline.webhooks.documents import PublicDocuments
from sightline.webhooks.http_client import WebhookClient, WebhookClientOptions
from sightline.webhooks.service import WebhookEndpoints
from sightline.webhooks.signing import WebhookSigner


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Webhooks:
    """The parts of the webhooks."""

    endpoints: WebhookEndpoints
    dispatcher: WebhookDispatcher
    documents: PublicDocuments


def make_webhooks(settings: Settings, secrets: Secrets, database: Database, clock: Clock, ids: Ids) -> Webhooks:
    """Create the parts of the webhooks. Run `dispatcher` for deliveries."""
    store, signer = PostgresWebhooks(database), WebhookSigner(secrets.customer_webhook_key)
    render = partial(message_body, limits=settings.limits().session)
    options = WebhookClientOptions(allows_loopback=settings.webhook_allow_loopback)
    client = WebhookClient(clock, options)
    return Webhooks(
        documents=PublicDocuments(options, bytes_max=DOCUMENT_BYTES_MAX),
        endpoints=WebhookEndpoints(store, signer, render, clock, ids, allows_loopback=settings.webhook_allow_loopback),
        dispatcher=WebhookDispatcher(
            store,
            client,
            signer,
            render,
            clock=clock,
            ids=ids,
            rng=random.Random(ids.token_bytes(16)),  # noqa: S311  (jitter of retries, never a secret)
            options=DeliveryOptions(retry_seconds=settings.webhook_retry_seconds),
        ),
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
