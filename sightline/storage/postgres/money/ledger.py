"""The settlement outbox, holds and the watcher's wallets on Postgres."""

from collections.abc import Sequence
from typing import Any, Final, final

from sightline.domain.books.statement import Invoice, Month, WorkspaceStatement
from sightline.domain.units import MicroUsdc
from sightline.ports.leases import ServerRole
from sightline.ports.ledger import (
    DAY_MS,
    HEADERS_MAX,
    WOKEN_MAX,
    BlockApplication,
    BlockRef,
    ChainIdentity,
    CursorMovedError,
    FundsPolicy,
    LedgerEventKind,
    LedgerQuery,
    LedgerRow,
    LiveHold,
    OwnTransaction,
    ReadingState,
    UsageDay,
    UsageSide,
    WalletView,
    WrittenOffMeanwhileError,
)
from sightline.storage.database.pool import Connection
from sightline.storage.postgres.money import holds, journal
from sightline.storage.postgres.money.outbox import CURSOR, block_of
from sightline.storage.postgres.money.payments import (
    ADD_UNKNOWN,
    MAKE_FINAL,
    VOID_UNKNOWN,
    WITHOUT_SETTLEMENT,
    WRITTEN_OFF,
    WRITTEN_OFF_MEANWHILE,
    unknown_columns,
)
from sightline.storage.postgres.money.settlements import PostgresOutbox
from sightline.storage.postgres.money.statements import issue_invoice, read_statement

_USAGE = """
SELECT composed_at_ms / 86400000 AS day, count(*) AS sessions, sum((payload ->> 'seconds')::bigint) AS seconds,
  sum((payload ->> 'toAmount')::numeric) AS to_amount, sum((payload ->> 'feeAmount')::numeric) AS fee_amount
FROM settlement
WHERE payload ->> '{side}' = $1 AND composed_at_ms >= $2 AND composed_at_ms < $3 AND state <> 'WRITTEN_OFF'
  AND lane <> 'VOID'
GROUP BY 1 ORDER BY 1
"""
USAGE: Final = {side: _USAGE.format(side=side) for side in UsageSide}
_TAKE_FROM_FAUCET = """
INSERT INTO faucet_day AS f (address, day, amount) SELECT $1::text, $2::integer, $3::numeric WHERE $3::numeric <= $4
ON CONFLICT (address, day) DO UPDATE SET amount = f.amount + excluded.amount
  WHERE f.amount + excluded.amount <= $4
RETURNING amount
"""
_GIVEN_BY_FAUCET = "SELECT amount FROM faucet_day WHERE address = $1 AND day = $2"
NONE_FINAL: Final = -1
CURSOR_LOCK_KEY: Final = 5_300_044
"""Key of the advisory lock on the watcher's cursor. Any constant number works."""

_IDENTIFY = """
INSERT INTO chain_identity (chain_id, genesis_hash, usdc_address, settlement_address) VALUES ($1, $2, $3, $4)
ON CONFLICT (id) DO NOTHING
"""
_TRACKED_AMONG = """
SELECT DISTINCT t.address, w.needs_reading FROM tracked_wallet t LEFT JOIN wallet_state w USING (address)
WHERE t.address = ANY($1::text[])
"""
_TO_READ = "SELECT address, is_new FROM wallet_to_read LIMIT $1"
_OLDEST = "SELECT address FROM wallet_state WHERE updated_at_ms < $1 ORDER BY updated_at_ms LIMIT $2"
_ADD_EVENTS = """
INSERT INTO wallet_event (address, kind, tx_hash, log_index, block_number, block_hash, from_address, to_address,
  amount, session_id_hash, created_at_ms)
SELECT *, $11 FROM unnest($1::text[], $2::text[], $3::text[], $4::integer[], $5::bigint[], $6::text[], $7::text[],
  $8::text[], $9::numeric[], $10::text[])
ON CONFLICT (tx_hash, log_index, address) DO UPDATE SET kind = excluded.kind, removed = false,
  block_number = excluded.block_number, block_hash = excluded.block_hash, amount = excluded.amount,
  confirmed_at_ms = CASE WHEN wallet_event.block_hash = excluded.block_hash AND NOT wallet_event.removed
    THEN wallet_event.confirmed_at_ms END
"""
_READINGS = """
unnest($1::text[], $2::numeric[], $3::numeric[], $4::bigint[], $5::numeric[], $6::numeric[], $7::numeric[],
  $8::bigint[]) AS r(address, balance, allowance, block_number, session_limit, day_limit, spent, spent_day)
"""
_CHANGED = f"""
SELECT r.address FROM {_READINGS} LEFT JOIN wallet_state w USING (address)
WHERE (w.balance, w.allowance, w.session_limit, w.day_limit, w.spent, w.spent_day)
  IS DISTINCT FROM (r.balance, r.allowance, r.session_limit, r.day_limit, r.spent, r.spent_day)
"""  # noqa: S608  # constants
_SET_READINGS = f"""
INSERT INTO wallet_state AS w (address, balance, allowance, block_number, session_limit, day_limit, spent, spent_day,
  needs_reading, updated_at_ms)
SELECT r.*, false, $9 FROM {_READINGS}
ON CONFLICT (address) DO UPDATE SET balance = excluded.balance, allowance = excluded.allowance,
  block_number = excluded.block_number, session_limit = excluded.session_limit, day_limit = excluded.day_limit,
  spent = excluded.spent, spent_day = excluded.spent_day, needs_reading = false, updated_at_ms = excluded.updated_at_ms
  WHERE w.needs_reading OR w.block_number <= excluded.block_number
"""  # noqa: S608  # constants
_WAS_READ = "DELETE FROM wallet_to_read WHERE address = ANY($1::text[])"
_DEMOTE = """
UPDATE settlement s SET lane = 'RETRY' FROM wallet_state w
WHERE w.address = ANY($1::text[]) AND s.payer = w.address AND s.lane = 'PAYABLE'
  AND s.state IN ('COMPOSED', 'REVERTED', 'FAILED')
  AND (s.amount > wallet_spendable(w, $2) OR s.amount > w.session_limit)
"""
_WAKE = """
UPDATE settlement SET lane = 'PAYABLE', retry_at_ms = $2 WHERE session_id IN (
  SELECT c.session_id FROM wallet_state w CROSS JOIN LATERAL (
    SELECT s.session_id FROM settlement s WHERE s.payer = w.address AND s.lane = 'RETRY'
      AND s.state IN ('COMPOSED', 'REVERTED', 'FAILED')
      AND s.amount <= least(wallet_spendable(w, $2), w.session_limit)
    ORDER BY s.amount LIMIT $3) c
  WHERE w.address = ANY($1::text[]))
"""
_RELEASE_SETTLED = """
UPDATE hold SET state = 'RELEASED', released_block = s.number, updated_at_ms = $3
FROM unnest($1::text[], $2::bigint[]) AS s(hash, number)
WHERE session_id_hash = s.hash
  AND (state <> 'RELEASED' OR released_block IS NOT NULL OR escrowed_block IS NOT NULL)
"""
_RELEASE_ESCROWED = """
UPDATE hold SET state = 'RELEASED', escrowed_block = s.number, updated_at_ms = $3,
  amount = coalesce((SELECT t.amount FROM settlement t WHERE t.session_id = hold.session_id), amount)
FROM unnest($1::text[], $2::bigint[]) AS s(hash, number) WHERE session_id_hash = s.hash
"""
_CONFIRM = f"""
WITH final AS ({MAKE_FINAL})
UPDATE wallet_event SET confirmed_at_ms = $2
WHERE confirmed_at_ms IS NULL AND NOT removed AND block_number <= $1
"""  # noqa: S608  # constants
_SET_CURSOR = """
INSERT INTO chain_cursor AS c (number, block_hash, parent_hash, checked_at_ms, final_number)
VALUES ($1, $2, $3, $4, least($1::bigint, $5::bigint))
ON CONFLICT (id) DO UPDATE SET number = $1, block_hash = $2, parent_hash = $3, checked_at_ms = $4,
  final_number = least($1::bigint, greatest(c.final_number, $5::bigint))
RETURNING final_number
"""
_MARK_CHECKED = """
UPDATE chain_cursor SET checked_at_ms = $1, read_in_epoch = coalesce((SELECT epoch FROM shard WHERE id = $2), 0)
"""
_ADD_HEADERS = """
INSERT INTO chain_header (number, block_hash, parent_hash) SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[])
ON CONFLICT (number) DO UPDATE SET block_hash = excluded.block_hash, parent_hash = excluded.parent_hash
"""
_VOID = (
    """UPDATE wallet_event SET removed = true, confirmed_at_ms = NULL WHERE block_number > $1 AND NOT removed""",
    """
    UPDATE hold h SET released_block = CASE WHEN released_block <= $1 THEN released_block END,
      escrowed_block = CASE WHEN escrowed_block <= $1 THEN escrowed_block END,
      amount = CASE WHEN escrowed_block <= $1 OR escrowed_block IS NULL THEN amount ELSE coalesce((
        SELECT o.max_amount + extended_amount(h.session_id) FROM hold_opening o WHERE o.session_id = h.session_id),
        amount) END,
      state = CASE WHEN escrowed_block <= $1 THEN 'RELEASED'
        WHEN released_block IS NOT NULL OR EXISTS (SELECT FROM settlement t WHERE t.session_id = h.session_id)
        THEN 'CHARGE' ELSE 'OPEN' END
    WHERE released_block > $1 OR escrowed_block > $1
    """,
    """
    WITH outdated AS (UPDATE wallet_state SET needs_reading = true WHERE block_number > $1 RETURNING address)
    INSERT INTO wallet_to_read SELECT address, false FROM outdated ON CONFLICT DO NOTHING
    """,
    """DELETE FROM chain_header WHERE number > $1""",
    VOID_UNKNOWN,
)
_WALLET = """
SELECT t.address, w.balance, w.allowance, w.block_number, w.needs_reading, w.updated_at_ms, t.tracked_at_ms,
  w.session_limit, w.day_limit, w.spent, w.spent_day, c.number AS head, c.checked_at_ms, coalesce((
    SELECT sum(h.amount) FROM hold h WHERE h.payer = t.address AND h.state <> 'RELEASED'), 0) AS held, coalesce((
    SELECT sum(o.max_amount + extended_amount(h.session_id)) FROM hold h JOIN hold_opening o USING (session_id)
    WHERE h.payer = t.address AND h.escrowed_block IS NOT NULL AND h.released_block IS NULL), 0) AS escrowed
FROM tracked_wallet t LEFT JOIN wallet_state w USING (address) LEFT JOIN chain_cursor c ON true
WHERE t.workspace_id = $1
"""
# What ledger_count_for_key sums up.
_SPENT_BY_KEY = """
SELECT coalesce(sum(amount), 0) FROM hold WHERE key_id = $1 AND key_day = $2
  AND (state <> 'RELEASED' OR released_block IS NOT NULL OR escrowed_block IS NOT NULL)
"""
_LIVE_HOLDS = """
SELECT h.session_id::text, h.payer, h.amount, w.session_limit FROM hold h JOIN session s ON s.id = h.session_id
  LEFT JOIN wallet_state w ON w.address = h.payer AND NOT w.needs_reading
WHERE s.state = 'LIVE' AND h.state = 'OPEN' AND ($1::text IS NULL OR h.payer = $1)
"""
_LEDGER = """
SELECT e.*, coalesce(h.session_id, r.session_id)::text AS session_id, c.number AS head
FROM tracked_wallet t JOIN wallet_event e USING (address) LEFT JOIN chain_cursor c ON true
LEFT JOIN hold h ON h.session_id_hash = e.session_id_hash
LEFT JOIN refund r ON r.tx_hash = e.tx_hash AND e.kind = 'TRANSFER_IN'
WHERE t.workspace_id = $1 AND ($2::bigint IS NULL OR e.sequence < $2)
  AND ($3::text[] IS NULL OR e.kind = ANY($3)) AND ($4::bigint IS NULL OR e.block_number >= $4)
  AND ($5::bigint IS NULL OR e.block_number <= $5)
  AND ($6::uuid IS NULL OR coalesce(h.session_id, r.session_id) = $6)
ORDER BY e.sequence DESC LIMIT $7
"""


@final
class PostgresLedger(PostgresOutbox):
    """Implements `Ledger` on one Postgres database; changes that belong together are one transaction."""

    async def identify(self, identity: ChainIdentity) -> ChainIdentity:
        """Record the chain's identity if there is none, and return the recorded one."""

        async def unit(connection: Connection) -> ChainIdentity:
            await connection.execute(
                _IDENTIFY,
                identity.chain_id,
                identity.genesis_hash.lower(),
                identity.usdc_address.lower(),
                identity.settlement_address.lower(),
            )
            row = await connection.fetchrow("SELECT * FROM chain_identity")
            return ChainIdentity(
                chain_id=row["chain_id"],
                genesis_hash=row["genesis_hash"],
                usdc_address=row["usdc_address"],
                settlement_address=row["settlement_address"],
            )

        return await self._database.transact(unit)

    async def track(self, workspace_id: str, address: str, *, now_ms: int) -> None:
        """Track the wallet of a workspace."""
        await self._database.run(
            lambda connection: holds.track_wallet(connection, workspace_id, address, now_ms=now_ms)
        )

    async def tracked_among(self, addresses: Sequence[str]) -> dict[str, ReadingState]:
        """Return which of these addresses are tracked, with the state of each reading."""
        rows = await self._database.read(lambda connection: connection.fetch(_TRACKED_AMONG, list(addresses)))
        known = {None: ReadingState.NEW, True: ReadingState.OUTDATED, False: ReadingState.CURRENT}
        return {row["address"]: known[row["needs_reading"]] for row in rows}

    async def wallets_to_read(self, *, limit: int) -> dict[str, ReadingState]:
        """Return the addresses whose reading is NEW or OUTDATED."""
        rows = await self._database.read(lambda connection: connection.fetch(_TO_READ, limit))
        return {row["address"]: ReadingState.NEW if row["is_new"] else ReadingState.OUTDATED for row in rows}

    async def oldest_readings(self, *, before_ms: int, limit: int) -> list[str]:
        """Return the addresses whose reading is older than this, oldest first."""
        rows = await self._database.read(lambda connection: connection.fetch(_OLDEST, before_ms, limit))
        return [row["address"] for row in rows]

    async def recent_headers(self) -> list[BlockRef]:
        """Return the last applied blocks, newest first."""
        rows = await self._database.read(
            lambda connection: connection.fetch("SELECT * FROM chain_header ORDER BY number DESC")
        )
        return [block_of(row) for row in rows]

    async def without_settlement(self, hashes: Sequence[str]) -> frozenset[str]:
        """Return which of these sessionIdHashes have neither a settlement that counts nor an adopted payment."""
        rows = await self._database.read(lambda connection: connection.fetch(WITHOUT_SETTLEMENT, list(hashes)))
        return frozenset(row["hash"] for row in rows)

    async def written_off(self, hashes: Sequence[str]) -> frozenset[str]:
        """Return which of these sessionIdHashes have a settlement that was written off, and no adopted payment."""
        rows = await self._database.read(lambda connection: connection.fetch(WRITTEN_OFF, list(hashes)))
        return frozenset(row["hash"] for row in rows)

    async def relayers(self) -> frozenset[str]:
        """Return the addresses of all keys that have signed settlements of this database."""
        rows = await self._database.read(lambda connection: connection.fetch("SELECT relayer FROM relayer_key"))
        return frozenset(row["relayer"] for row in rows)

    async def books_read_through(self) -> int | None:
        """Return the last block whose events are in the journal or wait for finality."""
        found: int | None = await self._database.read(lambda connection: connection.fetchval(journal.READ_THROUGH))
        return found

    async def own_transactions(self, tx_hashes: Sequence[str]) -> dict[str, OwnTransaction]:
        """Return which of these transactions our keys have signed."""
        return await self._database.read(lambda connection: journal.own_transactions(connection, tx_hashes))

    async def without_entry(self, *, after: str = "", limit: int) -> list[str]:
        """Return transactions that our keys have signed and whose gas or refund is not in the journal."""
        return await self._database.read(lambda connection: journal.without_entry(connection, after, limit))

    async def mark_checked(self, *, now_ms: int) -> None:
        """Record that every block up to the endpoint's head is applied."""
        await self._execute(_MARK_CHECKED, now_ms, ServerRole.WATCHER)

    async def apply_blocks(self, application: BlockApplication, *, now_ms: int) -> None:
        """Write events, readings, released holds and the cursor in one transaction."""
        await self._database.transact(lambda connection: _apply(connection, application, now_ms))

    async def roll_back(self, ancestor: BlockRef, *, cursor: BlockRef, now_ms: int) -> None:
        """Remove everything that was applied above the common ancestor."""

        async def unit(connection: Connection) -> None:
            await _require_cursor(connection, cursor)
            for statement in _VOID:
                await connection.execute(statement, ancestor.number)
            await journal.roll_back(connection, ancestor.number, now_ms)
            await _set_cursor(connection, ancestor, NONE_FINAL, now_ms)

        await self._database.transact(unit)

    async def wallet(self, workspace_id: str) -> WalletView | None:
        """Return the wallet of a workspace."""
        row = await self._database.read(lambda connection: connection.fetchrow(_WALLET, workspace_id))
        if row is None:
            return None
        read = row["balance"] is not None
        is_current = read and not row["needs_reading"]
        return WalletView(
            workspace_id=workspace_id,
            address=row["address"],
            balance_micro=int(row["balance"]) if read else 0,
            allowance_micro=int(row["allowance"]) if read else 0,
            held_micro=int(row["held"]),
            escrowed_micro=int(row["escrowed"]),
            last_sync_block=row["head"] if is_current else row["block_number"] or 0,
            updated_at_ms=row["updated_at_ms"] if read else row["tracked_at_ms"],
            limits=holds.limits_of(row),
        )

    async def spent_by_key(self, key_id: str, *, now_ms: int) -> MicroUsdc:
        """Return what counts against the limit of an API key on this UTC day."""
        day = now_ms // DAY_MS
        spent = await self._database.read(lambda connection: connection.fetchval(_SPENT_BY_KEY, key_id, day))
        return MicroUsdc(int(spent))

    async def ledger(self, workspace_id: str, query: LedgerQuery) -> list[LedgerRow]:
        """Return the workspace's ledger rows, newest first."""
        kinds = [kind.value for kind in query.kinds] or None
        bounds = (query.from_block, query.to_block, query.session_id, query.limit)
        rows = await self._database.read(
            lambda connection: connection.fetch(_LEDGER, workspace_id, query.before_sequence, kinds, *bounds)
        )
        return [ledger_row_of(workspace_id, row) for row in rows]

    async def usage(self, workspace_id: str, side: UsageSide, *, first_day: int, last_day: int) -> list[UsageDay]:
        """Return a workspace's ended sessions by day."""
        bounds = first_day * DAY_MS, (last_day + 1) * DAY_MS
        rows = await self._database.read(lambda connection: connection.fetch(USAGE[side], workspace_id, *bounds))
        return [
            UsageDay(row["day"], row["sessions"], int(row["seconds"]), int(row["to_amount"]), int(row["fee_amount"]))
            for row in rows
        ]

    async def statement(self, workspace_id: str, month: Month) -> WorkspaceStatement:
        """Return what the journal says of a workspace's sessions in a month."""
        return await self._database.read(lambda connection: read_statement(connection, workspace_id, month))

    async def invoice(self, statement: WorkspaceStatement, *, now_ms: int) -> Invoice:
        """Return the invoice of a closed month."""
        return await self._database.transact(lambda connection: issue_invoice(connection, statement, now_ms))

    async def take_from_faucet(self, address: str, amount_micro: int, *, daily_max: int, now_ms: int) -> int | None:
        """Count test money for a wallet."""
        given = await self._database.run(
            lambda connection: connection.fetchval(
                _TAKE_FROM_FAUCET, address.lower(), now_ms // DAY_MS, amount_micro, daily_max
            )
        )
        return None if given is None else daily_max - int(given)

    async def left_of_faucet(self, address: str, *, daily_max: int, now_ms: int) -> int:
        """Return what the faucet may still give to a wallet."""
        given = await self._database.read(
            lambda connection: connection.fetchval(_GIVEN_BY_FAUCET, address.lower(), now_ms // DAY_MS)
        )
        return max(0, daily_max - int(given or 0))

    async def take_hold(
        self, session_id: str, payer: str, amount_micro: int, policy: FundsPolicy, *, now_ms: int
    ) -> bool:
        """Reserve an amount for a session."""
        return await self._database.transact(
            lambda connection: holds.take_hold(
                connection, session_id=session_id, payer=payer, amount=amount_micro, policy=policy, now_ms=now_ms
            )
        )

    async def live_holds(self, payer: str | None = None) -> list[LiveHold]:
        """Return the holds of LIVE sessions, of one payer or of all."""
        address = None if payer is None else payer.lower()
        rows = await self._database.read(lambda connection: connection.fetch(_LIVE_HOLDS, address))
        return [
            LiveHold(
                row["session_id"], row["payer"], int(row["amount"]),
                None if row["session_limit"] is None else int(row["session_limit"]),
            )
            for row in rows
        ]  # fmt: skip

    async def charge_hold(self, session_id: str, charged_micro: int) -> None:
        """Lower the hold to the charge."""
        await self._database.run(lambda connection: holds.charge_hold(connection, session_id, charged_micro))

    async def release_hold(self, session_id: str) -> None:
        """Release the hold."""
        await self._database.run(lambda connection: holds.release_hold(connection, session_id))


async def _require_cursor(connection: Connection, expected: BlockRef | None) -> None:
    """Lock the cursor and compare it, so that only one of two watchers writes.

    Raises:
        CursorMovedError: The cursor is another block.
    """
    await connection.execute("SELECT pg_advisory_xact_lock($1)", CURSOR_LOCK_KEY)
    row = await connection.fetchrow(CURSOR)
    found = None if row is None else block_of(row)
    if found != expected:
        raise CursorMovedError(f"the cursor is {found}, not {expected}")


async def _apply(connection: Connection, application: BlockApplication, now_ms: int) -> None:
    await _require_cursor(connection, application.previous)
    if application.events:
        await connection.execute(_ADD_EVENTS, *_event_columns(application), now_ms)
    if application.readings:
        await _set_readings(connection, application, now_ms)
    if application.escrowed:
        taken = zip(*application.escrowed, strict=True)
        await connection.execute(_RELEASE_ESCROWED, *(list(column) for column in taken), now_ms)
    # After the opens: a hold may be opened and closed in these blocks.
    if application.settled:
        hashes = [settled[0] for settled in application.settled]
        numbers = [settled[1] for settled in application.settled]
        await connection.execute(_RELEASE_SETTLED, hashes, numbers, now_ms)
    if application.headers:
        headers = application.headers[-HEADERS_MAX:]
        await connection.execute(
            _ADD_HEADERS,
            [header.number for header in headers],
            [header.block_hash for header in headers],
            [header.parent_hash for header in headers],
        )
        await connection.execute("DELETE FROM chain_header WHERE number < $1", application.first_header)
    # The head first: the webhook of a deposit tells its confirmations.
    final = await _set_cursor(connection, application.head, application.final, now_ms)
    if application.unknown:
        await connection.execute(ADD_UNKNOWN, *unknown_columns(application.unknown))
    hashes = [settled[0] for settled in application.settled]
    if hashes and await connection.fetchval(WRITTEN_OFF_MEANWHILE, hashes):
        raise WrittenOffMeanwhileError("a settlement was written off after its payment was read")
    await connection.execute(_CONFIRM, application.confirmed_block, now_ms)
    await journal.apply(connection, application, final, now_ms)


async def _set_readings(connection: Connection, application: BlockApplication, now_ms: int) -> None:
    readings = application.readings
    limits = [reading.limits for reading in readings]
    columns = (
        [reading.address for reading in readings],
        [reading.balance_micro for reading in readings],
        [reading.allowance_micro for reading in readings],
        [reading.block_number for reading in readings],
        [None if each is None else each.per_session for each in limits],
        [None if each is None else each.per_day for each in limits],
        [0 if each is None else each.spent for each in limits],
        [0 if each is None else each.day for each in limits],
    )
    changed = [row["address"] for row in await connection.fetch(_CHANGED, *columns)]
    await connection.execute(_SET_READINGS, *columns, now_ms)
    await connection.execute(_WAS_READ, columns[0])
    if changed:
        await connection.execute(_DEMOTE, changed, now_ms)
        await connection.execute(_WAKE, changed, now_ms, WOKEN_MAX)


async def _set_cursor(connection: Connection, head: BlockRef, final: int, now_ms: int) -> int:
    """Set the cursor, and return the newest final block, which only a reorganisation lowers."""
    found: int = await connection.fetchval(
        _SET_CURSOR, head.number, head.block_hash, head.parent_hash, now_ms, final
    )  # fmt: skip
    return found


def _event_columns(application: BlockApplication) -> Sequence[list[Any]]:
    events = application.events
    return (
        [event.address for event in events],
        [event.kind.value for event in events],
        [event.tx_hash for event in events],
        [event.log_index for event in events],
        [event.block_number for event in events],
        [event.block_hash for event in events],
        [event.from_address for event in events],
        [event.to_address for event in events],
        [event.amount_micro for event in events],
        [event.session_id_hash for event in events],
    )


def ledger_row_of(workspace_id: str, row: Any) -> LedgerRow:
    """The row of a workspace's ledger in a stored row with the chain's head."""
    depth = 0 if row["removed"] or row["head"] is None else max(0, row["head"] - row["block_number"] + 1)
    return LedgerRow(
        sequence=row["sequence"],
        workspace_id=workspace_id,
        kind=LedgerEventKind(row["kind"]),
        tx_hash=row["tx_hash"],
        log_index=row["log_index"],
        block_number=row["block_number"],
        block_hash=row["block_hash"],
        from_address=row["from_address"],
        to_address=row["to_address"],
        amount_micro=int(row["amount"]),
        session_id=row["session_id"],
        confirmations=depth,
        confirmed_at_ms=row["confirmed_at_ms"],
        removed=row["removed"],
        created_at_ms=row["created_at_ms"],
    )
