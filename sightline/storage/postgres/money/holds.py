"""Writes holds and settlements in the caller's transaction, so that they commit together with their session.

Each function takes the connection of an open transaction and is idempotent.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from sightline.domain.settlement import SettlementPayload
from sightline.domain.units import MicroUsdc
from sightline.ports.ledger import FundsPolicy, SpendingLimits
from sightline.ports.store import HoldGrowth, HoldRequest, KeySpending, Rejected, RejectedWhy, SessionWrite
from sightline.storage.database.pool import Connection
from sightline.system.keccak import session_id_hash

STALE_MS_MAX: Final = 60_000
"""An ENFORCED hold is refused when the watcher has not seen the chain for this long."""

_TAKE_HOLD = "SELECT ledger_take_hold($1, $2, $3, $4, $5, $6, $7)"
_COUNT_FOR_KEY = "SELECT ledger_count_for_key($1, $2, $3, $4, $5)"
_GROW_HOLD = "SELECT ledger_grow_hold($1, $2, $3, $4, $5, $6, $7, $8)"
_FUNDS = """
SELECT w.session_limit, w.day_limit, w.spent, w.spent_day, w.balance, wallet_spendable(w, $3) AS spendable,
  EXISTS (SELECT FROM chain_cursor WHERE checked_at_ms >= $3 - $4) AS is_fresh,
  coalesce((SELECT sum(h.amount) FROM hold h
    WHERE h.payer = w.address AND h.state <> 'RELEASED' AND h.session_id <> $2), 0) AS held_beside,
  coalesce((SELECT h.amount FROM hold h WHERE h.session_id = $2), 0) AS held
FROM wallet_state w WHERE w.address = $1 AND NOT w.needs_reading
"""
_SHRINK_HOLD = "UPDATE hold SET amount = amount - $2 WHERE session_id = $1"
# When the escrow contract has taken the amount, the hold is RELEASED, but the API key's daily limit counts its amount.
_CHARGE_HOLD = """
UPDATE hold SET state = CASE state WHEN 'OPEN' THEN 'CHARGE' ELSE state END, amount = $2
WHERE session_id = $1 AND (state = 'OPEN' OR escrowed_block IS NOT NULL)
"""
_RELEASE_HOLD = """
UPDATE hold SET state = 'RELEASED', amount = 0
WHERE session_id = $1 AND (state = 'OPEN' OR escrowed_block IS NOT NULL)
"""
_COMPOSE = """
INSERT INTO settlement (session_id, session_id_hash, payload, state, retry_at_ms, composed_at_ms, updated_at_ms, lane)
SELECT $1, $2, $3, 'COMPOSED', $4::bigint, $4::bigint, $4::bigint, CASE
  WHEN $7 THEN 'VOID'
  WHEN $6::numeric = 0 THEN 'FREE'
  WHEN EXISTS (
    SELECT FROM wallet_state w WHERE w.address = $5 AND NOT w.needs_reading
      AND (wallet_spendable(w, $4::bigint) < $6::numeric OR w.session_limit < $6::numeric)) THEN 'RETRY'
  ELSE 'PAYABLE' END
ON CONFLICT (session_id) DO NOTHING
"""
_TRACK = """
INSERT INTO tracked_wallet (workspace_id, address, tracked_at_ms) VALUES ($1, $2, $3)
ON CONFLICT (workspace_id) DO NOTHING
"""


async def take_hold(
    connection: Connection,
    *,
    session_id: str,
    payer: str,
    amount: int,
    policy: FundsPolicy,
    now_ms: int,
    stale_ms_max: int = STALE_MS_MAX,
) -> bool:
    """Reserve `amount` micro-USDC of the payer's wallet for a session. Calls for one payer run one at a time.

    Returns:
        False, with nothing reserved, when ENFORCED and the wallet's last reading does not cover the amount or the chain
        was
        not seen for `stale_ms_max`. ADVISORY always reserves.
    """
    enforced = policy is FundsPolicy.ENFORCED
    return bool(
        await connection.fetchval(
            _TAKE_HOLD, session_id, session_id_hash(session_id), payer.lower(), amount, enforced, stale_ms_max, now_ms
        )
    )


async def count_for_key(connection: Connection, session_id: str, spending: KeySpending, *, now_ms: int) -> None:
    """Count the hold of a session against the limits of an API key.

    Raises:
        StatementRefusedError: A limit is passed; the transaction is undone.
    """
    limits = spending.limits
    await connection.execute(
        _COUNT_FOR_KEY, session_id, spending.key_id, limits.per_session, limits.per_day, now_ms
    )  # fmt: skip


async def grow_hold(connection: Connection, session_id: str, growth: HoldGrowth, *, now_ms: int) -> None:
    """Add an amount to a session's hold, or only check whether that is allowed.

    Raises:
        StatementRefusedError: It is not allowed; the transaction is undone.
    """
    await connection.execute(
        _GROW_HOLD, session_id, growth.payer_address.lower(), growth.amount, growth.is_taken, growth.is_enforced,
        growth.unfunded_max, STALE_MS_MAX, now_ms,
    )  # fmt: skip
    if growth.spending is not None:
        await count_for_key(connection, session_id, growth.spending, now_ms=now_ms)
    if growth.is_trial:
        await connection.execute(_SHRINK_HOLD, session_id, growth.amount)


async def why_not_funded(
    connection: Connection,
    write: SessionWrite,
    why: RejectedWhy,
    request: HoldRequest | HoldGrowth,
    *,
    is_authorized: bool,
) -> Rejected:
    """Return a rejection for the payer's funds, with what they leave for the session."""
    row = await connection.fetchrow(
        _FUNDS, request.payer_address.lower(), write.session.id, write.at_ms, STALE_MS_MAX
    )  # fmt: skip
    if row is None:
        return Rejected(why)
    limits, beside = limits_of(row), int(row["held_beside"])
    if limits is not None:
        left = limits.left_for_session(beside, write.at_ms)
        if row["held"] + request.amount > left:
            return Rejected(why, MicroUsdc(left))
    if why is RejectedWhy.UNFUNDED or not row["is_fresh"]:
        return Rejected(why)
    funds = row["balance"] if is_authorized else row["spendable"]
    return Rejected(why, free=MicroUsdc(max(0, int(funds) - beside)))


def limits_of(row: Mapping[str, Any]) -> SpendingLimits | None:
    """Return the limits in a row of `wallet_state`."""
    if row["session_limit"] is None:
        return None
    return SpendingLimits(
        per_session=int(row["session_limit"]), per_day=int(row["day_limit"]), spent=int(row["spent"]),
        day=row["spent_day"],
    )  # fmt: skip


async def charge_hold(connection: Connection, session_id: str, charged: int) -> None:
    """Lower an open hold to the charge; it stays until the watcher sees the settlement."""
    await connection.execute(_CHARGE_HOLD, session_id, charged)


async def release_hold(connection: Connection, session_id: str) -> None:
    """Release an open hold of a cancelled or expired session."""
    await connection.execute(_RELEASE_HOLD, session_id)


async def compose_settlement(
    connection: Connection, payload: SettlementPayload, *, now_ms: int, is_void: bool = False
) -> None:
    """Add an ended session to the settlement outbox; a later payload for the same session is ignored.

    Args:
        is_void: The session never was LIVE: its amount returns from escrow, and nobody is told of a settlement.
    """
    await connection.execute(
        _COMPOSE, payload.session_id, session_id_hash(payload.session_id), payload_text(payload), now_ms,
        payload.from_address.lower(), payload.to_amount + payload.fee_amount, is_void,
    )  # fmt: skip


async def track_wallet(connection: Connection, workspace_id: str, address: str, *, now_ms: int) -> None:
    """Track the wallet of a new workspace."""
    await connection.execute(_TRACK, workspace_id, address.lower(), now_ms)


def payload_text(payload: SettlementPayload) -> str:
    """Encode a payload for storage; amounts are decimal text, so that every JSON reader keeps them exact."""
    return json.dumps(
        {
            "sessionId": payload.session_id,
            "from": payload.from_address,
            "to": payload.to_address,
            "toAmount": str(payload.to_amount),
            "feeAmount": str(payload.fee_amount),
            "rate": str(payload.rate),
            "seconds": payload.chargeable_seconds,
            "consumer": payload.consumer_workspace_id,
            "operator": payload.operator_workspace_id,
            "feeBps": payload.platform_fee_bps,
        }
    )


def payload_of(text: str) -> SettlementPayload:
    """Decode a stored payload."""
    content = json.loads(text)
    return SettlementPayload(
        session_id=content["sessionId"],
        from_address=content["from"],
        to_address=content["to"],
        to_amount=MicroUsdc(int(content["toAmount"])),
        fee_amount=MicroUsdc(int(content["feeAmount"])),
        rate=MicroUsdc(int(content["rate"])),
        chargeable_seconds=int(content["seconds"]),
        consumer_workspace_id=content["consumer"],
        operator_workspace_id=content["operator"],
        platform_fee_bps=int(content["feeBps"]),
    )
