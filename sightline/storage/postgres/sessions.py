"""Sessions in Postgres: one SQL function per write, so that a write is one round trip and one transaction.

Only a write that closes the money of a session takes more round trips, because it also writes the ledger.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sightline.domain.session.codec import from_doc, to_doc
from sightline.domain.session.messages import Event, EventKind
from sightline.domain.session.model import Delivery, Live, MediaCheckpoint, Session, SessionState
from sightline.ports.store import (
    ABANDONED_READ,
    Committed,
    ConsumerDispatches,
    HoldRequest,
    RecordedEvent,
    Rejected,
    RejectedWhy,
    SessionWrite,
    StoredSession,
    UnfinishedSession,
)
from sightline.storage.database.bridge import Database
from sightline.storage.database.group_commit import Columns, GroupCommit
from sightline.storage.database.pool import Connection
from sightline.storage.json import dump, load
from sightline.storage.postgres import heartbeats
from sightline.storage.postgres.commits import decided, edge_columns, id_bounds, idempotency_columns
from sightline.storage.postgres.money import holds
from sightline.system.keccak import session_id_hash

WRITE: Final = f"SELECT why, revision FROM write_session({', '.join(f'${number}' for number in range(1, 36))})"  # noqa: S608  numbers only

# `admit_payer` raises: in which order the two run does not matter.
CREATE: Final = (
    f"SELECT w.why, w.revision FROM write_session({', '.join(f'${number}' for number in range(1, 36))}) w, "  # noqa: S608  numbers only
    "admit_payer($10, $30, $31, $36, $22) admitted"
)

_FOR_FUNDS: Final = (RejectedWhy.FUNDS, RejectedWhy.UNFUNDED)

_LOAD = """
SELECT s.doc, s.version, m.proved_at_ms, m.delivered_first_ms, m.delivered_last_ms, m.delivered_gap_ms
FROM session s LEFT JOIN media_proof m ON m.session_id = s.id WHERE s.id = $1
"""

_OF_OPERATOR = """
SELECT id FROM session WHERE operator_workspace_id = $1 AND state = $2 ORDER BY created_at_ms, id
"""

# Both conditions repeat those of the partial indexes. `updated_at_ms` orders by the index; it is the time of the write.
DISPATCHES: Final = """
SELECT consumer,
  ARRAY(SELECT id FROM session WHERE consumer_workspace_id = consumer AND state = 'ASSIGNED'
    AND doc #>> '{phase,is_dispatched}' = 'true') AS unstarted,
  ARRAY(SELECT (doc #>> '{phase,closed_at_ms}')::bigint FROM session WHERE consumer_workspace_id = consumer
    AND state IN ('CANCELLED', 'EXPIRED') AND doc #>> '{phase,is_dispatched}' = 'true'
    AND doc #>> '{phase,reason}' IN ('START_TIMEOUT', 'CONSUMER_CANCELLED')
    ORDER BY updated_at_ms DESC LIMIT $2) AS abandoned
FROM unnest($1::uuid[]) AS consumer
"""

UNFINISHED: Final = """
SELECT id, state, operator_workspace_id, video_ref, due_at_ms FROM session
WHERE state IN ('REQUESTED', 'ASSIGNED', 'LIVE') AND id BETWEEN $1 AND $2 ORDER BY id
"""

_EVENTS = """
SELECT sequence, kind, at_ms, facts, hash FROM session_event WHERE session_id = $1 AND sequence > $2
ORDER BY sequence LIMIT $3
"""

# Sorted, so that two checkpoints lock their rows in one order.
_PROVE_MEDIA = """
INSERT INTO media_proof AS m (session_id, proved_at_ms, delivered_first_ms, delivered_last_ms, delivered_gap_ms)
SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[]) ORDER BY 1
ON CONFLICT (session_id) DO UPDATE SET
  proved_at_ms = greatest(m.proved_at_ms, excluded.proved_at_ms),
  delivered_first_ms = least(m.delivered_first_ms, excluded.delivered_first_ms),
  delivered_last_ms = greatest(m.delivered_last_ms, excluded.delivered_last_ms),
  delivered_gap_ms = greatest(m.delivered_gap_ms, excluded.delivered_gap_ms)
"""


async def write_session(database: Database, steps: GroupCommit, write: SessionWrite) -> Committed | Rejected:
    """Store one write of a session in one transaction.

    A write that is rejected for the payer's funds reads once more, what these leave.
    """
    result, request = await _write_session(database, steps, write), write.take_hold or write.grow_hold
    if request is None or not isinstance(result, Rejected) or result.why not in _FOR_FUNDS:
        return result
    is_authorized = write.session.terms.is_authorized
    return await database.read(
        lambda connection: holds.why_not_funded(connection, write, result.why, request, is_authorized=is_authorized)
    )


async def _write_session(database: Database, steps: GroupCommit, write: SessionWrite) -> Committed | Rejected:
    columns, hold = session_columns(write), write.take_hold
    statement, values = (WRITE, columns) if hold is None else (CREATE, (*columns, hold.unfunded_max))

    async def whole(connection: Connection) -> Any:
        row = await connection.fetchrow(statement, *values)
        if row["why"] is None:
            await _close_money(connection, write)
            if hold is not None and hold.spending is not None:
                await holds.count_for_key(connection, write.session.id, hold.spending, now_ms=write.at_ms)
            if write.grow_hold is not None:
                await holds.grow_hold(connection, write.session.id, write.grow_hold, now_ms=write.at_ms)
        return row

    moves_money = write.charge_hold is not None or write.release_hold or write.settle is not None
    moves_money |= write.grow_hold is not None
    if moves_money or (hold is not None and hold.spending is not None):
        return await decided(database.transact(whole), write.session.version)
    if hold is not None or write.consume_quote is not None:
        # These lock rows that other writes lock too (a wallet, a quote): a batch of them could deadlock.
        return await decided(
            database.run(lambda connection: connection.fetchrow(statement, *values)), write.session.version
        )
    return await decided(steps.write(columns), write.session.version)


def session_columns(write: SessionWrite) -> Columns:
    """The arguments of the SQL function `write_session`."""
    session, terms = write.session, write.session.terms
    operator, phase = session.operator, session.phase
    return (
        write.lease.shard,
        write.lease.epoch,
        *idempotency_columns(write.idempotency),
        session.id,
        session.version,
        session.state.value,
        terms.consumer_workspace_id,
        operator.workspace_id if operator is not None else None,
        terms.lat,
        terms.lng,
        terms.created_at_ms,
        terms.wait_deadline_ms,
        write.due_at_ms,
        phase.video.ref if isinstance(phase, Live) else None,
        dump(to_doc(session)),
        write.at_ms,
        write.consume_quote,
        [recorded.sequence for recorded in write.events],
        [recorded.event.kind.value for recorded in write.events],
        [recorded.event.at_ms for recorded in write.events],
        [dump(recorded.event.facts) for recorded in write.events],
        [recorded.hash for recorded in write.events],
        *_hold_columns(write.session.id, write.take_hold),
        *edge_columns(write.tuples),
    )


def _hold_columns(session_id: str, hold: HoldRequest | None) -> tuple[object, ...]:
    if hold is None:
        return (None, None, None, None, None)
    payer = hold.payer_address.lower()
    return (session_id_hash(session_id), payer, hold.amount, hold.is_enforced, holds.STALE_MS_MAX)


async def _close_money(connection: Connection, write: SessionWrite) -> None:
    if write.charge_hold is not None:
        await holds.charge_hold(connection, write.session.id, write.charge_hold)
    if write.release_hold:
        await holds.release_hold(connection, write.session.id)
    if write.settle is not None:
        is_void = write.session.state is not SessionState.ENDED
        await holds.compose_settlement(connection, write.settle, now_ms=write.at_ms, is_void=is_void)


async def load_session(database: Database, session_id: str) -> StoredSession | None:
    """Read a session and, while it is LIVE, the heartbeats recorded since its last write."""

    async def unit(connection: Connection) -> tuple[Session, MediaCheckpoint | None, list[Any]] | None:
        row = await connection.fetchrow(_LOAD, session_id)
        if row is None:
            return None
        session = from_doc(load(row["doc"]), row["version"])
        later: list[Any] = []
        if isinstance(phase := session.phase, Live):
            later = await heartbeats.rows_since(
                connection, phase.operator.workspace_id, phase.started_at_ms, phase.location.last_sequence
            )
        return session, _checkpoint_of(row), later

    found = await database.read(unit)
    if found is None:
        return None
    session, media, rows = found
    return StoredSession(
        session=session,
        media=media,
        heartbeats=tuple(heartbeats.heartbeat_of(row) for row in rows),
    )


async def sessions_of_operator(database: Database, workspace_id: str, state: SessionState) -> Sequence[str]:
    """Ids of the operator's sessions in a state, oldest first."""
    rows = await database.read(lambda connection: connection.fetch(_OF_OPERATOR, workspace_id, state.value))
    return [str(row["id"]) for row in rows]


async def find_dispatches(connection: Connection, consumers: Sequence[str]) -> dict[str, ConsumerDispatches]:
    """The unstarted and the abandoned dispatches of several consumer workspaces."""
    rows = await connection.fetch(DISPATCHES, consumers, ABANDONED_READ)
    return {
        str(row["consumer"]): ConsumerDispatches(frozenset(map(str, row["unstarted"])), tuple(row["abandoned"]))
        for row in rows
    }


async def unfinished_sessions(database: Database, shard: int | None) -> Sequence[UnfinishedSession]:
    """Every session that is not terminal, of one shard or of all, by id."""
    bounds = id_bounds(shard)
    rows = await database.read(lambda connection: connection.fetch(UNFINISHED, *bounds))
    return [
        UnfinishedSession(
            id=str(row["id"]),
            state=SessionState(row["state"]),
            operator_workspace_id=str(row["operator_workspace_id"]) if row["operator_workspace_id"] else None,
            video_ref=row["video_ref"],
            due_at_ms=row["due_at_ms"],
        )
        for row in rows
    ]


async def session_events(
    database: Database, session_id: str, *, after: int, limit: int | None
) -> Sequence[RecordedEvent]:
    """Return the recorded events after a sequence, in order."""
    rows = await database.read(lambda connection: connection.fetch(_EVENTS, session_id, after, limit))
    return [RecordedEvent(row["sequence"], _event(row), row["hash"]) for row in rows]


def _event(row: Mapping[str, Any]) -> Event:
    facts = tuple((name, value) for name, value in load(row["facts"]))
    return Event(EventKind(row["kind"]), row["at_ms"], facts)


def _checkpoint_of(row: Mapping[str, Any]) -> MediaCheckpoint | None:
    if row["proved_at_ms"] is None:
        return None
    first_ms, last_ms, gap_ms = row["delivered_first_ms"], row["delivered_last_ms"], row["delivered_gap_ms"]
    delivery = None if first_ms is None else Delivery(first_ms, last_ms, gap_ms)
    return MediaCheckpoint(proved_at_ms=row["proved_at_ms"], delivery=delivery)


async def checkpoint_media(database: Database, checkpoints: Mapping[str, MediaCheckpoint]) -> None:
    """Join the checkpoints with the earlier ones of their sessions."""
    if checkpoints:
        found = [(each.proved_at_ms, each.delivery) for each in checkpoints.values()]
        columns = (
            list(checkpoints),
            [proved_at_ms for proved_at_ms, _ in found],
            [None if delivery is None else delivery.first_at_ms for _, delivery in found],
            [None if delivery is None else delivery.last_at_ms for _, delivery in found],
            [None if delivery is None else delivery.longest_gap_ms for _, delivery in found],
        )
        await database.run(lambda connection: connection.execute(_PROVE_MEDIA, *columns))
