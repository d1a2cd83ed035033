"""Settlements, blocks and wallets for the contract of ledgers."""

from sightline.domain.settlement import SettlementPayload
from sightline.domain.units import MicroUsdc
from sightline.domain.value import replace
from sightline.ports.ledger import (
    Attempt,
    BlockApplication,
    BlockRef,
    ChainEvent,
    Ledger,
    LedgerEventKind,
    SettlementLane,
    SettlementRecord,
    SettlementState,
    SpendingLimits,
    WalletReading,
)
from sightline.system.keccak import session_id_hash

CONSUMER = "11111111-1111-4111-8111-111111111111"
OPERATOR = "22222222-2222-4222-8222-222222222222"
SESSION = "33333333-3333-4333-8333-333333333333"
OTHER_SESSION = "44444444-4444-4444-8444-444444444444"
PAYER = "0x52908400098527886E0F7030069857D2E4169EE7"
PAYEE = "0x8617E340B3D01FA5F11F306F4090FD50E238070D"
RELAYER = "0xde709f2102306220921060314715629080e2fb77"
ENDLESS = 2**256 - 1


def a_payload(session_id: str = SESSION, *, to_amount: int = 85, fee_amount: int = 15) -> SettlementPayload:
    return SettlementPayload(
        session_id=session_id,
        from_address=PAYER,
        to_address=PAYEE,
        to_amount=MicroUsdc(to_amount),
        fee_amount=MicroUsdc(fee_amount),
        rate=MicroUsdc(10),
        chargeable_seconds=10,
        consumer_workspace_id=CONSUMER,
        operator_workspace_id=OPERATOR,
        platform_fee_bps=1500,
    )


def an_attempt(session_id: str = SESSION, *, nonce: int = 0, tx_hash: str = "0xaa") -> Attempt:
    return Attempt(
        session_id=session_id,
        nonce=nonce,
        tx_hash=tx_hash,
        raw=b"\x02raw" + tx_hash.encode(),
        max_fee_wei=2**70,
        tip_wei=1,
        signed_at_ms=5,
    )


def a_block(number: int, fork: str = "a") -> BlockRef:
    return BlockRef(number=number, block_hash=f"0x{fork}{number}", parent_hash=f"0x{fork}{number - 1}")


def an_event(block: BlockRef, *, amount: int = 100, tx_hash: str = "0xt1", session: str | None = None) -> ChainEvent:
    return ChainEvent(
        address=PAYER.lower(),
        kind=LedgerEventKind.DEPOSIT if session is None else LedgerEventKind.SETTLEMENT,
        tx_hash=tx_hash,
        log_index=0,
        block_number=block.number,
        block_hash=block.block_hash,
        from_address="0x" + "0" * 40,
        to_address=PAYER.lower(),
        amount_micro=amount,
        session_id_hash=None if session is None else session_id_hash(session),
    )


def an_application(
    block: BlockRef,
    *,
    events: tuple[ChainEvent, ...] = (),
    balance: int | None = None,
    allowance: int = ENDLESS,
    settled: tuple[str, ...] = (),
    confirmed_block: int | None = None,
    limits: SpendingLimits | None = None,
) -> BlockApplication:
    reading = WalletReading(
        address=PAYER.lower(),
        balance_micro=balance or 0,
        allowance_micro=allowance,
        block_number=block.number,
        limits=limits,
    )
    return BlockApplication(
        headers=(block,),
        events=events,
        readings=() if balance is None else (reading,),
        settled=tuple((session_id_hash(session), block.number) for session in settled),
        head=block,
        confirmed_block=block.number if confirmed_block is None else confirmed_block,
        previous=None,
    )


async def apply(ledger: Ledger, application: BlockApplication, *, now_ms: int) -> None:
    """Apply blocks after the current cursor."""
    await ledger.apply_blocks(replace(application, previous=await ledger.chain_head()), now_ms=now_ms)


async def state_of(ledger: Ledger, session_id: str = SESSION) -> SettlementState:
    record = await ledger.settlement(session_id)
    assert record is not None
    return record.state


async def record_of(ledger: Ledger, session_id: str = SESSION) -> SettlementRecord:
    record = await ledger.settlement(session_id)
    assert record is not None
    return record


async def lane_of(ledger: Ledger, session_id: str = SESSION) -> SettlementLane:
    record = await ledger.settlement(session_id)
    assert record is not None
    return record.lane


async def funded(ledger: Ledger, *, balance: int, allowance: int = ENDLESS) -> None:
    await ledger.track(CONSUMER, PAYER, now_ms=0)
    await apply(ledger, an_application(a_block(1), balance=balance, allowance=allowance), now_ms=0)


async def held(ledger: Ledger) -> int:
    view = await ledger.wallet(CONSUMER)
    assert view is not None
    return view.held_micro
