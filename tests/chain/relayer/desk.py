"""A relayer with a ledger in memory and a node in the test process."""

from dataclasses import dataclass, field
from typing import Any

import trio

from sightline.chain.gas_key import GasKey, LocalGasKey
from sightline.chain.relayer.options import RelayerOptions
from sightline.chain.relayer.relayer import Relayer
from sightline.chain.rpc.client import JsonRpc
from sightline.chain.signer import Signer
from sightline.domain.session.model import Ended, Session, SessionState
from sightline.domain.settlement import SettlementPayload
from sightline.domain.units import MicroUsdc
from sightline.domain.value import replace
from sightline.ports.chain import SettlementUpdate
from sightline.ports.ledger import (
    BlockApplication,
    BlockRef,
    FundsPolicy,
    SettlementRecord,
    SettlementState,
    WalletReading,
)
from sightline.system.ids import SystemIds
from simulation.memory.ledger import MemoryLedger
from tests.chain.relayer.settling_node import SettlingNode
from tests.contract.builders import a_session, an_operator, in_phase

ids = SystemIds()
PAYER, PAYEE = "0x" + "a1" * 20, "0x" + "b2" * 20
SECONDS, RATE = 60, 1_000
NO_ALLOWANCE = "execution reverted: TestUSDC: amount exceeds allowance"


class TrioClock:
    """A wall clock that follows trio's clock, which is virtual in these tests."""

    def now_ms(self) -> int:
        return round(trio.current_time() * 1_000)


class FixedIds:
    """Ids whose random bytes are all alike."""

    def __init__(self, byte: int) -> None:
        self._byte = byte

    def token_bytes(self, count: int) -> bytes:
        return bytes([self._byte]) * count

    def uuid(self) -> str:
        return f"{self._byte:08d}-0000-4000-8000-000000000000"


@dataclass
class Desk:
    """A relayer with a ledger in memory; the test runs single rounds or the loop."""

    node: SettlingNode
    rpc: JsonRpc
    ledger: MemoryLedger
    sessions: dict[str, Session] = field(default_factory=dict)
    told: list[SettlementUpdate] = field(default_factory=list)
    key: GasKey = field(default_factory=lambda: LocalGasKey(Signer(ids.token_bytes(32))))

    def relayer(self, *, own_ids: Any = ids, **options: Any) -> Relayer:
        chosen = RelayerOptions(**({"depth": 2, "replace_ms": 1_000, "resend_ms": 500} | options))
        return Relayer(self.rpc, self.ledger, self.key, self.node.identity, chosen, clock=TrioClock(), ids=own_ids)

    async def hear(self, update: SettlementUpdate) -> None:
        self.told.append(update)

    async def ended(self, *, payer: str = PAYER, seconds: int = SECONDS, **changed: Any) -> str:
        """End a session; `changed` makes the settlement differ from the recorded session."""
        session_id, now_ms = ids.uuid(), TrioClock().now_ms()
        total = RATE * seconds
        fee = total * 1_500 // 10_000
        session = a_session(id=session_id, payer_address=payer, rate=MicroUsdc(RATE))
        session = in_phase(session, SessionState.ENDED, replace(an_operator(), wallet_address=PAYEE))
        assert isinstance(session.phase, Ended)
        phase = replace(session.phase, clean_seconds=seconds, charged=MicroUsdc(total))
        self.sessions[session_id] = replace(session, phase=phase)
        self.ledger.session_of = self.sessions.get
        await self.ledger.take_hold(session_id, payer, 2 * total, FundsPolicy.ADVISORY, now_ms=now_ms)
        await self.ledger.charge_hold(session_id, total)
        payload = SettlementPayload(
            session_id=session_id, from_address=payer, to_address=PAYEE, to_amount=MicroUsdc(total - fee),
            fee_amount=MicroUsdc(fee), rate=MicroUsdc(RATE), chargeable_seconds=seconds,
            consumer_workspace_id=session.terms.consumer_workspace_id,
            operator_workspace_id=phase.operator.workspace_id, platform_fee_bps=1_500,
        )  # fmt: skip
        await self.ledger.compose(replace(payload, **changed), now_ms=now_ms)
        return session_id

    async def record(self, session_id: str) -> SettlementRecord:
        record = await self.ledger.settlement(session_id)
        assert record is not None
        return record

    async def state(self, session_id: str) -> SettlementState:
        return (await self.record(session_id)).state

    async def watch(self) -> None:
        """Apply the node's blocks to the ledger, and roll back those that were replaced, as the watcher does."""
        head = await self.ledger.chain_head()
        blocks = [
            BlockRef(number=block.number, block_hash=block.block_hash, parent_hash=block.parent_hash)
            for block in self.node.blocks
        ]
        now_ms = TrioClock().now_ms()
        if head is not None:
            applied = set(await self.ledger.recent_headers())
            ancestor = [block for block in blocks if block in applied][-1]
            if ancestor != head:
                await self.ledger.roll_back(ancestor, cursor=head, now_ms=now_ms)
                head = ancestor
        new = tuple(block for block in blocks if head is None or block.number > head.number)
        if new:
            application = BlockApplication(
                headers=new, events=(), readings=(), settled=(), head=new[-1], confirmed_block=new[-1].number,
                previous=head,
            )  # fmt: skip
            await self.ledger.apply_blocks(application, now_ms=now_ms)

    async def set_funds(self, payer: str, micro: int) -> None:
        """Set the watcher's last reading of a wallet."""
        previous = await self.ledger.chain_head()
        number = 1 if previous is None else previous.number + 1
        head = BlockRef(number=number, block_hash=f"0x{number}", parent_hash=f"0x{number - 1}")
        reading = WalletReading(address=payer, balance_micro=micro, allowance_micro=micro, block_number=number)
        application = BlockApplication(
            headers=(), events=(), readings=(reading,), settled=(), head=head, confirmed_block=number,
            previous=previous,
        )  # fmt: skip
        await self.ledger.apply_blocks(application, now_ms=TrioClock().now_ms())
