"""Settlements, wallets, their ledger, and the chain's addresses."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Final, Literal, TypeAlias

from pydantic import Field, field_validator

from sightline.domain.access import KeyLimits
from sightline.domain.addresses import shown_address
from sightline.http.cursors import LEDGER_CURSOR
from sightline.http.schemas.base import (
    HASH_PATTERN,
    INTEGER_TEXT,
    Address,
    Input,
    Instant,
    Money,
    Output,
    Query,
    Uuid,
    iso,
    iso_or_none,
    labelled,
)
from sightline.ports.ledger import LedgerRow, SettlementLane, SettlementRecord, SettlementState, WalletView

EventKindName: TypeAlias = Literal["DEPOSIT", "WITHDRAWAL", "APPROVAL", "SETTLEMENT", "TRANSFER_IN", "TRANSFER_OUT"]


class SettlementPayload(Output):
    """What is settled on the chain."""

    session_id_hash: str = Field(pattern=HASH_PATTERN, description="keccak256 of the lower-case session id")
    from_: Address = Field(alias="from")
    to: Address
    to_amount: Money
    fee_amount: Money
    rate_per_second: Money
    chargeable_seconds: int
    consumer_workspace_id: Uuid
    operator_workspace_id: Uuid
    platform_fee_bps: int


MISMATCHED_DESCRIPTION: Final = (
    "True if the contract settled the session with parties or numbers that differ from the record of the session; "
    "the payload has those of the contract"
)


REFUSED_FOR_DESCRIPTION: Final = (
    "Why the newest try was refused, which is repeated: the payer's allowance, balance or own limit does not allow the "
    "payment. Null while nothing was refused"
)
RefusedFor: TypeAlias = Literal["ALLOWANCE", "BALANCE", "SESSION_LIMIT", "DAY_LIMIT", "OTHER"]
_REFUSED_FOR: Final[tuple[tuple[str, RefusedFor], ...]] = (
    ("payer's session limit", "SESSION_LIMIT"),
    ("payer's day limit", "DAY_LIMIT"),
    ("allowance", "ALLOWANCE"),
    ("balance", "BALANCE"),
)
"""Text that the revert reason of the contract or the token contains, and the bound of the payer that it names."""


def _refused_for(record: SettlementRecord) -> RefusedFor | None:
    if record.state not in {SettlementState.FAILED, SettlementState.REVERTED}:
        return None
    return next((name for part, name in _REFUSED_FOR if part in (record.reason or "")), "OTHER")


class Settlement(Output):
    """How far the settlement of a session is."""

    session_id: Uuid
    state: Literal["NOT_READY", "PENDING", "CONFIRMED"]
    payload: SettlementPayload | None
    tx_hash: str | None
    confirmed_at: Instant | None
    mismatched: bool = Field(description=MISMATCHED_DESCRIPTION)
    refused_for: RefusedFor | None = Field(description=REFUSED_FOR_DESCRIPTION)
    written_off: bool = Field(description="Whether the administrators gave the payment up: nothing is owed any more")


class WalletLimits(Output):
    """The limits that the wallet set on the settlement contract by `setLimits`."""

    per_session_micro_usdc: Money
    per_day_micro_usdc: Money = Field(description="For one UTC day")
    left_today_micro_usdc: Money = Field(description="Of the limit per day: what is neither charged today nor held")


class KeyLimitsToday(Output):
    """The spending limits of the API key of this call; null: no such limit."""

    per_session_micro_usdc: Money | None
    per_day_micro_usdc: Money | None = Field(description="For the sessions that the key creates on one UTC day")
    left_today_micro_usdc: Money | None = Field(
        description="Of the limit per day: what neither holds nor charges of the key's sessions of today take"
    )


class Wallet(Output):
    """What the watcher saw of the workspace's wallet; the chain is the authority."""

    workspace_id: Uuid
    wallet_address: Address
    tracked_balance: Money
    tracked_allowance: Money = Field(description="Allowance of the settlement contract")
    held_micro_usdc: Money = Field(description="Reserved for open sessions")
    escrowed_micro_usdc: Money = Field(description="In escrow for open sessions; the balance is without it")
    available_micro_usdc: Money = Field(description="What balance and allowance leave beside what is held")
    limits: WalletLimits | None = Field(
        description="A session may cost no more than these leave, whatever is available; null: the wallet set none"
    )
    key_limits: KeyLimitsToday | None = Field(
        description="A session that this API key creates may cost no more than these leave; null: the key has none"
    )
    last_sync_block: str
    updated_at: Instant


BlockNumber: TypeAlias = Annotated[int, Field(ge=0, le=9_007_199_254_740_991), INTEGER_TEXT]


class WalletEventsQuery(Query):
    """Which rows of the ledger, newest first. Block bounds are inclusive."""

    AREA = "wallet"
    LABELS: ClassVar[Mapping[str, str]] = {"limit": "pagination:limit", "cursor": "pagination:cursor"}

    kind: tuple[EventKindName, ...] = Field(default=(), description="May be repeated")
    from_block: BlockNumber | None = None
    to_block: BlockNumber | None = None
    session_id: Uuid | None = Field(default=None, description="Movements of one session")
    limit: Annotated[int, Field(ge=1, le=100), INTEGER_TEXT] = 20
    cursor: str | None = Field(default=None, pattern=LEDGER_CURSOR, description="nextCursor of the page before")


class WalletEvent(Output):
    """One event on the chain as the workspace sees it."""

    id: str
    workspace_id: Uuid
    kind: EventKindName
    tx_hash: str
    log_index: int
    block_number: str
    block_hash: str
    from_address: Address
    to_address: Address
    amount_micro_usdc: Money
    session_id: Uuid | None = Field(
        description="The session that a SETTLEMENT pays, or of which a TRANSFER_IN is a refund"
    )
    confirmations: int
    confirmed_at: Instant | None
    removed: bool = Field(description="True after a reorganisation of the chain")
    created_at: Instant


class WalletEventPage(Output):
    """A page of the ledger."""

    items: list[WalletEvent]
    next_cursor: str | None


class FaucetBody(Input):
    """How much test money."""

    AREA = "faucet"
    REFUSES_MISSPELT = True

    amount_micro_usdc: Money = Field(
        default="10000000",
        description="At least 1 micro-USDC",
        json_schema_extra={"pattern": "^[1-9][0-9]{0,77}$"},
    )

    @field_validator("amount_micro_usdc")
    @classmethod
    def _is_positive(cls, amount: str) -> str:
        if amount == "0":
            raise labelled("faucet:amountMicroUsdc", "amountMicroUsdc must be at least 1")
        return amount


class FaucetPayment(Output):
    """Test money that was paid."""

    wallet_address: Address
    amount_micro_usdc: Money
    tx_hash: str = Field(description="The mined transaction")
    remaining_micro_usdc: Money = Field(description="What the wallet may still get on this UTC day")


class ChainConfig(Output):
    """What a client needs to drive a wallet, and what the server offers."""

    environment: Literal["TEST"]
    chain_id: int
    chain_name: str
    rpc_url: str
    explorer_url: str
    usdc_address: Address
    settlement_address: Address
    is_escrow: bool = Field(description="Whether a session needs a signed `payment`, or the workspace a mandate")
    clip_seconds: int = Field(description="Seconds of video that the server keeps for clips; 0: it has no clips")
    frame_signing: Literal["off", "request", "always"] = Field(
        description="Whether frames and clips have content credentials: never, if a call asks for them, or always"
    )


class Health(Output):
    """Alive."""

    ok: bool
    surface: Literal["public"]
    version: Literal["v1"]
    build_sha: str


def settlement_json(session_id: str, record: SettlementRecord | None) -> dict[str, object]:
    """Present a settlement as `Settlement`. FAILED, parked and written-off ones are PENDING."""
    if record is None or record.lane is SettlementLane.VOID:
        return {
            "sessionId": session_id,
            "state": "NOT_READY",
            "payload": None,
            "txHash": None,
            "confirmedAt": None,
            "mismatched": False,
            "refusedFor": None,
            "writtenOff": False,
        }
    is_mismatched = record.state is SettlementState.MISMATCHED
    is_confirmed = is_mismatched or record.state is SettlementState.CONFIRMED
    # What the contract settled counts, where that differs from what was asked for.
    payload = record.on_chain or record.payload
    return {
        "sessionId": session_id,
        "state": "CONFIRMED" if is_confirmed else "PENDING",
        "payload": {
            "sessionIdHash": record.session_id_hash,
            "from": shown_address(payload.from_address),
            "to": shown_address(payload.to_address),
            "toAmount": str(payload.to_amount),
            "feeAmount": str(payload.fee_amount),
            "ratePerSecond": str(payload.rate),
            "chargeableSeconds": payload.chargeable_seconds,
            "consumerWorkspaceId": payload.consumer_workspace_id,
            "operatorWorkspaceId": payload.operator_workspace_id,
            "platformFeeBps": payload.platform_fee_bps,
        },
        "txHash": record.tx_hash,
        "confirmedAt": iso_or_none(record.confirmed_at_ms if is_confirmed else None),
        "mismatched": is_mismatched,
        "refusedFor": _refused_for(record),
        "writtenOff": record.state is SettlementState.WRITTEN_OFF,
    }


def wallet_json(
    wallet: WalletView, now_ms: int, *, key_limits: KeyLimits | None, spent_by_key: int
) -> dict[str, object]:
    """Present the tracked wallet, and the limits of the caller's key, as `Wallet`."""
    limits = wallet.limits
    return {
        "workspaceId": wallet.workspace_id,
        "walletAddress": shown_address(wallet.address),
        "trackedBalance": str(wallet.balance_micro),
        "trackedAllowance": str(wallet.allowance_micro),
        "heldMicroUsdc": str(wallet.held_micro),
        "escrowedMicroUsdc": str(wallet.escrowed_micro),
        "availableMicroUsdc": str(wallet.available_micro),
        "limits": None
        if limits is None
        else {
            "perSessionMicroUsdc": str(limits.per_session),
            "perDayMicroUsdc": str(limits.per_day),
            "leftTodayMicroUsdc": str(max(0, limits.left_of_day(now_ms) - wallet.held_micro)),
        },
        "keyLimits": None if key_limits is None else _key_limits_json(key_limits, spent_by_key),
        "lastSyncBlock": str(wallet.last_sync_block),
        "updatedAt": iso(wallet.updated_at_ms),
    }


def _key_limits_json(limits: KeyLimits, spent: int) -> dict[str, object]:
    return {
        "perSessionMicroUsdc": None if limits.per_session is None else str(limits.per_session),
        "perDayMicroUsdc": None if limits.per_day is None else str(limits.per_day),
        "leftTodayMicroUsdc": None if limits.per_day is None else str(max(0, limits.per_day - spent)),
    }


def wallet_event_json(row: LedgerRow) -> dict[str, object]:
    """Present one row of the ledger as `WalletEvent`."""
    return {
        "id": str(row.sequence),
        "workspaceId": row.workspace_id,
        "kind": row.kind,
        "txHash": row.tx_hash,
        "logIndex": row.log_index,
        "blockNumber": str(row.block_number),
        "blockHash": row.block_hash,
        "fromAddress": shown_address(row.from_address),
        "toAddress": shown_address(row.to_address),
        "amountMicroUsdc": str(row.amount_micro),
        "sessionId": row.session_id,
        "confirmations": row.confirmations,
        "confirmedAt": iso_or_none(row.confirmed_at_ms),
        "removed": row.removed,
        "createdAt": iso(row.created_at_ms),
    }
