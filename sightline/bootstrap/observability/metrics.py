"""The metrics of a server beside those of HTTP calls. docs/ops/run.md lists them."""

from collections.abc import Iterator
from importlib.metadata import version
from typing import Final

from sightline.bootstrap.adapters.webhooks import webhook_metrics
from sightline.bootstrap.core import Core
from sightline.bootstrap.observability.host_metrics import host_metrics
from sightline.bootstrap.observability.readiness import Readiness
from sightline.bootstrap.observability.self_report import LoopDelay
from sightline.chain.rpc.health import EndpointFault
from sightline.http.metrics import MetricFamily
from sightline.ports.leases import ServerRole
from sightline.ports.store import SHARDS
from sightline.storage.database.durability import SETTINGS, STANDBY

WEI: Final = 10**18
OPERATOR_STATES: Final = ("ONLINE", "BUSY")
SESSION_STATES: Final = ("REQUESTED", "ASSIGNED", "LIVE")


def read_metrics(core: Core, delay: LoopDelay, readiness: Readiness) -> Iterator[MetricFamily]:
    """Read all values; nothing waits. Values that need a query are those of the last sample."""
    yield MetricFamily(
        "ready", "1 for each readiness check that passed when it was last run",
        {(check,): int(is_ok) for check, is_ok in readiness.latest.items()}, ("check",),
    )  # fmt: skip
    yield from host_metrics(core.base.settings)
    yield MetricFamily(
        "build_info", "Version of the server; the value is 1",
        {(version("sightline-live"), core.base.settings.build_sha): 1}, ("version", "build_sha"),
    )  # fmt: skip
    yield MetricFamily(
        "event_loop_delay_seconds", "The longest time that the event loop was late, of the last 10 s", delay.worst_s
    )
    yield from _ownership(core)
    yield from _bus(core)
    yield from _actors(core)
    yield from _sampled(core)
    yield from _database(core)
    yield from _chain(core)
    yield from webhook_metrics(core.webhooks)


def _ownership(core: Core) -> Iterator[MetricFamily]:
    epochs = core.actors.deps.owned.epochs
    yield MetricFamily("owned_shards", "Shards that this server owns, of 256", sum(shard < SHARDS for shard in epochs))
    yield MetricFamily(
        "owned_role", "1 for each role that this server owns",
        {(role.name.lower(),): int(role in epochs) for role in ServerRole}, ("role",),
    )  # fmt: skip


def _bus(core: Core) -> Iterator[MetricFamily]:
    bus = core.membership.bus.statistics()
    yield MetricFamily("bus_connected", "1 while frames are carried to other servers", int(bus.is_connected))
    yield MetricFamily("bus_connections_total", "Connections to NATS since the start", bus.connections, is_counter=True)
    yield MetricFamily(
        "bus_frames_total", "Frames to or from other servers that were not sent, or lost",
        {
            ("refused",): bus.frames_refused,
            ("lost",): bus.frames_lost,
            ("not_authentic",): bus.frames_not_authentic,
        },
        ("outcome",), is_counter=True,
    )  # fmt: skip
    refused = core.membership.peers.counts.refused
    yield MetricFamily(
        "peer_frames_not_understood_total", "Frames of other servers, or parts, that were not understood",
        {(reason,): count for reason, count in sorted(refused.items())}, ("reason",), is_counter=True,
    )  # fmt: skip


def _actors(core: Core) -> Iterator[MetricFamily]:
    kernel = core.actors.registry.statistics()
    kinds = kernel.kinds.items()
    yield MetricFamily("actors_active", "Actors in memory", {(kind,): each.active for kind, each in kinds}, ("kind",))
    yield MetricFamily(
        "actor_messages_waiting", "Messages in mailboxes", {(kind,): each.depth for kind, each in kinds}, ("kind",)
    )
    yield MetricFamily(
        "actors_parked", "Actors that crashed too often", {(kind,): len(each.parked) for kind, each in kinds}, ("kind",)
    )
    yield MetricFamily("timers_armed", "Timers of actors", kernel.timers)
    yield MetricFamily("heartbeats_waiting", "Heartbeats that wait to be written", core.actors.writer.depth)
    counted = core.actors.deps.event_counts
    yield MetricFamily(
        "session_events_total", "Recorded events of sessions since the start; reason of pauses and ends",
        dict(sorted(counted.items())), ("event", "reason"), is_counter=True,
    )  # fmt: skip


def _sampled(core: Core) -> Iterator[MetricFamily]:
    figures = core.sampler.figures
    counts = figures.counts
    if figures.counted_at_ms:
        yield MetricFamily(
            "sessions", "Unfinished sessions by state",
            {(state,): counts.sessions.get(state, 0) for state in SESSION_STATES}, ("state",),
        )  # fmt: skip
        yield MetricFamily(
            "operators", "Operators by availability",
            {(state,): counts.operators.get(state, 0) for state in OPERATOR_STATES}, ("availability",),
        )  # fmt: skip
        backlog = sum(counts.settlements.values())
        yield MetricFamily("settlements_unconfirmed", "Settlements that are not confirmed", backlog)
        yield MetricFamily(
            "settlements_by_state", "Settlements that are not confirmed, by state",
            {(state,): count for state, count in sorted(counts.settlements.items())}, ("state",),
        )  # fmt: skip
        oldest_ms = counts.oldest_settlement_ms
        age_s = 0.0 if oldest_ms is None else max(0, core.base.clock.now_ms() - oldest_ms) / 1_000
        yield MetricFamily("settlement_oldest_age_seconds", "Age of the oldest settlement not confirmed", age_s)
        yield MetricFamily(
            "sample_timestamp_seconds", "When the figures above were counted", figures.counted_at_ms / 1_000
        )
    if figures.books is not None:
        yield MetricFamily(
            "books_differences", "Differences between the books and the chain, as last compared",
            figures.books.differences,
        )  # fmt: skip
        yield MetricFamily(
            "books_compared_timestamp_seconds", "When the books were last compared with the chain",
            figures.books.at_ms / 1_000,
        )  # fmt: skip
    coin = figures.relayer_coin
    if coin is not None:
        balance = coin.balance_wei / WEI
        yield MetricFamily("relayer_balance_native", "Native coin of the relayer's account, in whole coins", balance)
        yield MetricFamily(
            "relayer_sessions_left", "Sessions that the relayer's native coin pays at present prices", coin.sessions
        )
    video = figures.video
    if video:
        yield MetricFamily("video_publishers", "Publishers that send video", video["publishers"])
        yield MetricFamily("video_viewers", "Viewers by WHEP", video["viewers"])
        yield MetricFamily("video_inputs", "Open live inputs", video["inputs"])
        yield MetricFamily(
            "video_frames_total", "Pictures decoded and JPEGs encoded for frame requests",
            {("decoded",): video["decoded"], ("encoded",): video["encoded"]}, ("step",), is_counter=True,
        )  # fmt: skip


def _database(core: Core) -> Iterator[MetricFamily]:
    database, guard = core.stores.database.statistics(), core.stores.database.options.pool.guard
    yield MetricFamily(
        "database_primaries", "Hosts of the database that accept writes", 1 if guard is None else guard.primaries
    )
    yield MetricFamily(
        "database_not_durable", "1 for each setting of the database server that gives up durability",
        {(name,): int(name in core.sampler.figures.not_durable) for name in (*SETTINGS, STANDBY)}, ("setting",),
    )  # fmt: skip
    yield MetricFamily("database_units_in_flight", "Units of work on the database thread", database.in_flight)
    yield MetricFamily(
        "database_units_waiting", "Units of work that wait for a connection", database.waiting_for_connection
    )
    yield MetricFamily(
        "database_connections", "Open connections by use",
        {
            ("idle",): database.connections_idle,
            ("busy",): max(0, database.connections_open - database.connections_idle),
        },
        ("use",),
    )  # fmt: skip


def _chain(core: Core) -> Iterator[MetricFamily]:
    """Figures of relayer and watcher, each on the server that runs it."""
    unknown = core.actors.deps.payment_hold.unknown
    yield MetricFamily("unknown_payments", "Payments on the chain that the database does not know", unknown.count)
    yield MetricFamily("unknown_payments_micro_usdc", "Sum of these payments, in micro-USDC", unknown.amount_micro)
    relayer, watcher = core.chain.relayer_status(), core.chain.watcher_status()
    rounds: dict[tuple[str, ...], float] = {}
    if relayer is not None:
        rounds["relayer",] = relayer.round_at_ms / 1_000
    if watcher is not None:
        rounds["watcher",] = watcher.seen_at_ms / 1_000
        yield MetricFamily("chain_head_block", "Newest block of the endpoint", watcher.head_number)
        yield MetricFamily("chain_lag_blocks", "Blocks that the watcher has not read", watcher.lag_blocks)
        yield MetricFamily("chain_watcher_failures", "Failed rounds of the watcher in a row", watcher.failures)
    endpoints = core.chain.endpoints()
    yield MetricFamily(
        "chain_endpoint_up", "1 while the RPC endpoint answers reads; 0: it is left out, or lags",
        {(each.name,): int(not (each.is_left_out or each.is_lagging)) for each in endpoints}, ("endpoint",),
    )  # fmt: skip
    yield MetricFamily(
        "chain_endpoint_faults_total", "Faults of the RPC endpoint",
        {(each.name, fault.value): each.faults[fault] for each in endpoints for fault in EndpointFault},
        ("endpoint", "fault"), is_counter=True,
    )  # fmt: skip
    yield MetricFamily(
        "chain_signer_up", "1 while transactions and messages are signed; 0: the process that has the key does not",
        {(key,): int(reason is None) for key, reason in core.chain.signers().items()}, ("key",),
    )  # fmt: skip
    if rounds:
        is_halted = any(each is not None and each.halted_because is not None for each in (relayer, watcher))
        yield MetricFamily("chain_halted", "1 when relayer or watcher have halted", int(is_halted))
        yield MetricFamily(
            "chain_round_timestamp_seconds", "When the loop last completed a round, or was started", rounds, ("loop",)
        )
