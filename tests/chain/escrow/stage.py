"""Sessions whose amount is in escrow, on a chain with SessionEscrow and a database, without actors."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

import trio
from eth_account import Account
from eth_account.messages import encode_typed_data

from sightline.chain.contracts.abi import call_data
from sightline.chain.contracts.messages import SigningDomain, TransferWithAuthorization
from sightline.chain.escrow import ChainEscrow
from sightline.chain.service import ChainService, Holds, open_chain
from sightline.domain.errors import ChainUnavailableError
from sightline.domain.escrow import ConsentKind, ExactTransfer, PayerConsent, SignedMandate
from sightline.domain.session import machine
from sightline.domain.session.codec import to_doc
from sightline.domain.session.machine import settlement_of
from sightline.domain.session.messages import Extend, Step
from sightline.domain.session.model import (
    Assigned,
    Closed,
    Ended,
    EndReason,
    Session,
    SessionExtension,
    SessionLimits,
    SessionState,
)
from sightline.domain.units import MicroUsdc
from sightline.domain.value import replace
from sightline.ports.chain import SettlementUpdate
from sightline.ports.escrow import EscrowTerms, ExactPayment
from sightline.ports.ledger import FundsPolicy, SettlementState
from sightline.storage.database.bridge import Database
from sightline.storage.json import dump
from sightline.storage.postgres.money.extensions import PostgresExtensions
from sightline.storage.postgres.money.ledger import PostgresLedger
from sightline.storage.postgres.money.mandates import PostgresMandates
from sightline.storage.postgres.money.openings import PostgresOpenings
from sightline.storage.postgres.money.permits import PostgresPermits
from sightline_client.escrow import sign_mandate
from sightline_client.models import ChainConfig
from sightline_client.wallet import LocalWallet
from tests.chain.world import Wallet, World, clock, ids, options_for, until
from tests.contract.builders import a_session, an_operator, in_phase

RATE, DURATION_S = 1_000, 60
HOLD = RATE * DURATION_S
HEAD = "ab" * 32
_INSERT = """
INSERT INTO session (id, shard, version, state, consumer_workspace_id, operator_workspace_id, lat, lng, created_at_ms,
  wait_deadline_ms, doc, updated_at_ms)
VALUES ($1, 0, 1, $2, $3, $4, 0, 0, 0, 0, $5, 0)
ON CONFLICT (id) DO UPDATE SET state = $2, doc = $5
"""
Kind: TypeAlias = ConsentKind | Literal["exact"]
KINDS: Final[tuple[Kind, ...]] = (*ConsentKind, "exact")
"""How a payer consents to a hold; exact as clients of x402 do."""


class UnpayableError(Exception):
    """The service does not take a payment of x402."""


@dataclass
class Stage:
    """One chain, one database, and the service that runs on them."""

    world: World
    database: Database
    meter_key: bytes
    openings: PostgresOpenings
    ledger: PostgresLedger
    far_s: int = field(default_factory=lambda: clock.now_ms() // 1_000 + 10_000_000)
    """Until when holds may be opened: blocks of a test's chain may be far ahead of the clock."""

    @classmethod
    def on(cls, world: World, database: Database, meter_key: bytes) -> "Stage":
        world.ledger, world.database = PostgresLedger(database), database
        return cls(world, database, meter_key, PostgresOpenings(database), PostgresLedger(database))

    @asynccontextmanager
    async def opened(self, **changed: Any) -> AsyncIterator[ChainService]:
        """Open the service without relayer and watcher, as a server has it that holds neither role."""
        # A capture waits for no others, unless a test says so.
        chosen = {"is_escrow": True, "meter_key": self.meter_key, "capture_window_ms": 0} | changed
        options = options_for(self.world, **chosen)
        extensions = PostgresExtensions(self.database)
        holds = Holds(
            all=self.openings, relayer=self.openings, extensions=extensions, relayer_extensions=extensions,
            permits=PostgresPermits(self.database), relayer_permits=PostgresPermits(self.database),
            mandates=PostgresMandates(self.database),
        )  # fmt: skip
        async with open_chain(options, ledger=self.ledger, holds=holds, clock=clock, ids=ids) as service:
            yield service

    @asynccontextmanager
    async def running(self, **changed: Any) -> AsyncIterator[ChainService]:
        """Run relayer and watcher."""

        async def told(update: SettlementUpdate) -> None:
            self.world.updates.append(update)

        async with self.opened(**changed) as service, trio.open_nursery() as nursery:
            nursery.start_soon(service.run_watcher)
            nursery.start_soon(service.run_relayer, told)
            yield service
            nursery.cancel_scope.cancel()

    async def assigned(
        self, service: ChainService, *, payer: Wallet | None = None, kind: Kind = ConsentKind.AUTHORIZATION,
        payee: Wallet | None = None, duration_s: int = DURATION_S, rate: int = RATE,
    ) -> Session:  # fmt: skip
        """Store a session that its operator starts now, with the payer's consent."""
        source = payer or self.world.payer
        session = a_session(
            id=ids.uuid(), consumer_workspace_id=source.workspace_id, payer_address=source.address,
            rate=MicroUsdc(rate), hold=MicroUsdc(rate * duration_s), max_duration_s=duration_s,
        )  # fmt: skip
        consent = await self._consent(service, session, source, kind)
        session = replace(session, terms=replace(session.terms, consent=consent))
        operator = replace(an_operator(), wallet_address=(payee or self.world.payee).address)
        session = in_phase(session, SessionState.ASSIGNED, operator)
        assert isinstance(session.phase, Assigned)
        session = replace(session, phase=replace(session.phase, funding_at_ms=clock.now_ms()))
        await self.store(session)
        await self.ledger.take_hold(
            session.id, source.address, session.terms.hold, FundsPolicy.ADVISORY, now_ms=clock.now_ms()
        )
        self.world.sessions.append(session.id)
        return session

    async def _consent(self, service: ChainService, session: Session, payer: Wallet, kind: Kind) -> PayerConsent:
        assert service.escrow is not None
        terms = session.terms
        if kind == "exact":
            return await self._exact(service.escrow, terms.hold, payer)
        if kind is ConsentKind.MANDATE:
            config = ChainConfig(
                environment="TEST", chain_id=service.config.chain_id, chain_name="", rpc_url="", explorer_url="",
                usdc_address=self.world.token, settlement_address=service.config.settlement_address,
            )  # fmt: skip
            made = sign_mandate(
                config, LocalWallet.from_key(payer.key), max_per_session=terms.hold, max_per_day=10**9,
                max_rate_per_second=terms.rate, valid_until=self.far_s,
            )  # fmt: skip
            limits = made["mandate"]
            mandate = SignedMandate(
                payer=payer.address.lower(), max_per_session=terms.hold, max_per_day=MicroUsdc(10**9),
                max_rate=terms.rate, max_fee_bps=limits["maxFeeBps"], valid_until_s=self.far_s,
                salt=limits["salt"], signature=made["signature"],
            )  # fmt: skip
            return PayerConsent(kind=kind, open_by_s=self.far_s, mandate=mandate)
        asked = EscrowTerms(
            session_id=terms.id, payer=payer.address.lower(), max_amount=terms.hold, rate=terms.rate,
            fee_bps=terms.platform_fee_bps, open_by_s=self.far_s,
        )  # fmt: skip
        signable = encode_typed_data(full_message=service.escrow.typed_data(asked)[kind])
        signature = "0x" + bytes(Account.sign_message(signable, payer.key).signature).hex()
        return PayerConsent(kind=kind, open_by_s=self.far_s, signature=signature)

    async def _exact(self, escrow: ChainEscrow, amount: MicroUsdc, payer: Wallet) -> PayerConsent:
        """What a client of x402 signs, which the service has checked."""
        asset, nonce = escrow.exact_asset, "0x" + ids.token_bytes(32).hex()
        domain = SigningDomain(name=asset.name, version=asset.version, chain_id=asset.chain_id, contract=asset.token)
        message = TransferWithAuthorization(
            sender=payer.address, receiver=asset.pay_to, value=amount, valid_after_s=0, valid_before_s=self.far_s,
            nonce=bytes.fromhex(nonce[2:]),
        )  # fmt: skip
        payment = ExactPayment(
            payer=payer.address.lower(), amount=amount, valid_before_s=self.far_s,
            transfer=ExactTransfer(nonce=nonce, valid_after_s=0),
            signature=LocalWallet.from_key(payer.key).sign_typed_data(domain.typed_data(message)),
        )  # fmt: skip
        while True:
            try:
                reason = await escrow.why_unpayable(payment)
            except ChainUnavailableError:
                # A node has no newest block during a reorganisation; the payer is told to try again.
                await trio.sleep(0.05)
                continue
            if reason is not None:
                raise UnpayableError(reason)
            return payment.consent()

    async def live(self, session: Session) -> Session:
        """Store a session whose hold is open as LIVE."""
        session = in_phase(session, SessionState.LIVE, session.operator)
        await self.store(session)
        return session

    async def extending(
        self, service: ChainService, session: Session, seconds: int, kind: Kind = ConsentKind.AUTHORIZATION,
        payer: Wallet | None = None,
    ) -> Session:  # fmt: skip
        """Store a LIVE session that asks for more time, with the payer's consent."""
        assert service.escrow is not None
        payer, amount = payer or self.world.payer, MicroUsdc(session.terms.rate * seconds)
        if kind == "exact":
            consent = await self._exact(service.escrow, amount, payer)
        elif kind is ConsentKind.MANDATE:
            total = replace(session, terms=replace(session.terms, hold=MicroUsdc(session.terms.hold + amount)))
            consent = await self._consent(service, total, payer, kind)
        else:
            typed_data = (await service.escrow.extension_typed_data(session, amount, self.far_s))[kind]
            signed = Account.sign_message(encode_typed_data(full_message=typed_data), payer.key)
            signature = "0x" + bytes(signed.signature).hex()
            consent = PayerConsent(kind=kind, open_by_s=self.far_s, signature=signature)
        extension = SessionExtension(id=ids.uuid(), seconds=seconds, amount=amount, consent=consent)
        session = replace(session, extending=extension)
        await self.store(session)
        return session

    async def extended(self, session: Session, tx_hash: str) -> Session:
        """Store a session that has got the time that it asked for."""
        assert session.extending is not None
        step = machine.step(
            session, Extend(replace(session.extending, tx_hash=tx_hash)), session.newest_ms, SessionLimits()
        )
        assert isinstance(step, Step), step
        await self.store(step.session)
        return step.session

    async def ended(self, session: Session, seconds: int) -> int:
        """End a session; returns its charge."""
        live = in_phase(session, SessionState.ENDED, session.operator)
        assert isinstance(live.phase, Ended)
        charged = MicroUsdc(seconds * session.terms.rate)
        ended = replace(live, phase=replace(live.phase, clean_seconds=seconds, charged=charged), ended_head_hash=HEAD)
        await self.store(ended)
        assert session.operator is not None
        payload = settlement_of(session.terms, session.operator, seconds, charged)
        await self.ledger.charge_hold(session.id, charged)
        await self.ledger.compose(payload, now_ms=clock.now_ms())
        return charged

    async def closed(self, session: Session) -> None:
        """Cancel a session that was started and is not LIVE."""
        assert isinstance(session.phase, Assigned)
        closed = Closed(
            state=SessionState.CANCELLED, operator=session.phase.operator, assigned_at_ms=session.phase.assigned_at_ms,
            closed_at_ms=clock.now_ms(), reason=EndReason.CONSUMER_CANCELLED,
        )  # fmt: skip
        await self.store(replace(session, phase=closed, head_hash=HEAD))
        await self.ledger.release_hold(session.id)
        payload = settlement_of(session.terms, session.phase.operator, 0, MicroUsdc(0))
        await self.ledger.compose(payload, now_ms=clock.now_ms())

    async def store(self, session: Session) -> None:
        """Store a session's row."""
        operator = None if session.operator is None else session.operator.workspace_id
        columns = (
            session.id,
            session.state.value,
            session.terms.consumer_workspace_id,
            operator,
            dump(to_doc(session)),
        )
        await self.database.run(lambda connection: connection.execute(_INSERT, *columns))

    async def until_done(self, session_id: str, state: SettlementState = SettlementState.CONFIRMED) -> None:
        await self.world.until_state(session_id, state)

    async def until_opened(self, session_id: str) -> None:
        async def is_open() -> bool:
            row = await self.openings.opening(session_id)
            return row is not None and row.opened_at_s is not None

        await until("the hold is open", is_open)

    async def held(self) -> int:
        """What the contract says it holds for open sessions."""
        return await self._number("totalHeld()")

    async def in_contract(self) -> int:
        """The contract's balance."""
        return await self.world.balance(_Contract(self.world.settlement))  # type: ignore[arg-type]

    async def _number(self, question: str) -> int:
        call = {"to": self.world.settlement, "data": "0x" + call_data(question).hex()}
        return int(await self.world.rpc.call("eth_call", call, "latest"), 16)


@dataclass
class _Contract:
    address: str
