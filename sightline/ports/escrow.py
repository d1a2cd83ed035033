"""The port of the escrow: holds that the contract opens before a session, and what the meter signs about them."""

from collections.abc import Sequence
from typing import Any, Protocol, final

from sightline.domain.escrow import ConsentKind, ExactTransfer, PayerConsent, SignedMandate
from sightline.domain.session.model import Session, SessionExtension, Terms
from sightline.domain.units import MicroUsdc
from sightline.domain.value import Value, hiding
from sightline.ports.ledger import OutboxRecord, TransactionOutbox


@final
class HoldOpening(OutboxRecord, kw_only=True):
    """A hold that the contract shall open for a session, or has opened. Addresses are lower-case."""

    payer: str
    payee: str
    max_amount: MicroUsdc
    rate: MicroUsdc
    fee_bps: int
    consent: PayerConsent
    opened_at_s: int | None = None
    """Time of the block that opened it; None while it is in no block."""
    extended: int = 0
    """What the contract has added to `max_amount` in blocks."""


@final
class HoldExtension(OutboxRecord, kw_only=True):
    """An amount that the contract shall add to a session's hold, or has added.

    `session_id` is the extension's own id, by which the outbox knows the row; `session_id_hash` is the session's.
    """

    of_session: str
    amount: MicroUsdc
    consent: PayerConsent


@final
class AllowancePermit(OutboxRecord, kw_only=True):
    """A permit (EIP-2612) that the relayer shall send, or has sent, for a payer. Addresses are lower-case.

    `session_id` is the permit's own id, by which the outbox knows the row: a part of what was signed, so that a repeat
    has the same. `session_id_hash` is the owner as an event's topic.
    """

    owner: str
    spender: str
    amount: MicroUsdc
    nonce: int
    """The owner's nonce in the token."""
    deadline_s: int
    signature: str

    __repr__ = hiding("signature")


@final
class SignedPermit(Value, kw_only=True):
    """A permit as a payer sends it."""

    owner: str
    spender: str
    amount: MicroUsdc
    nonce: int
    deadline_s: int
    signature: str

    __repr__ = hiding("signature")


@final
class PermitTerms(Value, kw_only=True):
    """What a payer signs, so that the relayer sets its allowance. Addresses are EIP-55."""

    owner: str
    spender: str
    amount: MicroUsdc
    nonce: int
    deadline_s: int
    typed_data: dict[str, Any]


class PermitOutbox(TransactionOutbox[AllowancePermit], Protocol):
    """The permits that the relayer sends."""

    async def permit(self, permit_id: str) -> AllowancePermit | None:
        """Return one permit; None if it was not asked for."""
        ...

    async def request(self, permit: AllowancePermit, *, now_ms: int) -> bool:
        """Ask for a permit. One that was refused or given up is tried again; otherwise a repeat changes nothing.

        Returns:
            Whether no other permit with its nonce is on its way or was taken.
        """
        ...

    async def withdraw(self, permit_id: str, *, reason: str, now_ms: int) -> None:
        """Give up a permit for which no transaction may be mined any more."""
        ...

    async def paid_for(self, owner: str, *, since_ms: int, limit: int) -> list[int]:
        """Return when the newest permits of an owner were signed that were asked for since then, newest first."""
        ...


class OpeningOutbox(TransactionOutbox[HoldOpening], Protocol):
    """The holds that the relayer opens."""

    async def opening(self, session_id: str) -> HoldOpening | None:
        """Return the hold of one session; None if none was asked for."""
        ...

    async def openings(self, session_ids: Sequence[str]) -> dict[str, HoldOpening]:
        """Return the holds of these sessions by session id; sessions without one are omitted."""
        ...

    async def request(self, opening: HoldOpening, *, now_ms: int) -> None:
        """Ask for a hold. One that was refused is tried again; otherwise a repeat changes nothing."""
        ...

    async def withdraw(self, session_id: str, *, now_ms: int) -> bool:
        """Give up a hold for which no transaction may be mined any more, so that none is sent.

        Returns:
            Whether the session has no hold: it is withdrawn, or was never asked for.
        """
        ...

    async def unpaid(self, payer: str, *, since_ms: int, limit: int) -> list[int]:
        """Return when the newest holds of a payer were asked for that cost gas and ended without a charge.

        Args:
            payer: Lower-case address.
            since_ms: Holds that were asked for earlier are left out.
        """
        ...

    async def sessions(self, session_ids: Sequence[str]) -> dict[str, Session]:
        """Return the recorded sessions, by which a hold is checked before it is signed."""
        ...


class ExtensionOutbox(TransactionOutbox[HoldExtension], Protocol):
    """The amounts that the relayer adds to holds."""

    async def extension(self, extension_id: str) -> HoldExtension | None:
        """Return one extension; None if it was not asked for."""
        ...

    async def request(self, extension: HoldExtension, *, now_ms: int) -> None:
        """Ask for an extension. One that was given up is asked for again; otherwise a repeat changes nothing."""
        ...

    async def withdraw(self, extension_id: str, *, now_ms: int) -> bool:
        """Give up an extension for which no transaction may be mined any more.

        Returns:
            Whether it is given up.
        """
        ...

    async def revive(self, session_ids: Sequence[str]) -> None:
        """Look again for extensions of these sessions that were signed and then given up."""
        ...


class Mandates(Protocol):
    """The signed mandates of workspaces: at most one for each workspace."""

    async def mandate(self, workspace_id: str) -> SignedMandate | None:
        """Return the mandate of a workspace; None if it has none."""
        ...

    async def keep(self, workspace_id: str, mandate: SignedMandate, *, now_ms: int) -> None:
        """Store the mandate of a workspace in place of an earlier one."""
        ...

    async def drop(self, workspace_id: str) -> None:
        """Forget the mandate of a workspace."""
        ...


@final
class SignedStatement(Value, kw_only=True):
    """The meter's signed reading of a session whose charge is in escrow.

    With it and the hold, anyone can claim the charge from the contract: at any time if it is final, otherwise from an
    hour after the latest end.
    """

    hold: HoldOpening
    clean_seconds: int
    head_hash: str
    is_final: bool
    signature: str

    __repr__ = hiding("signature")


@final
class EscrowTerms(Value, kw_only=True):
    """What a payer signs for one session."""

    session_id: str
    payer: str
    max_amount: MicroUsdc
    rate: MicroUsdc
    fee_bps: int
    open_by_s: int


@final
class ExactAsset(Value, kw_only=True):
    """What a client of x402's scheme exact pays with, and to whom. Addresses are EIP-55."""

    chain_id: int
    token: str
    name: str
    """`name` and `version` of the token's EIP-712 domain."""
    version: str
    pay_to: str
    """The escrow contract."""


@final
class ExactPayment(Value, kw_only=True):
    """A signed EIP-3009 transfer to the contract, as a client of x402's scheme exact sends it."""

    payer: str
    """Lower-case address."""
    amount: MicroUsdc
    valid_before_s: int
    transfer: ExactTransfer
    signature: str

    __repr__ = hiding("signature")

    def consent(self) -> PayerConsent:
        """Return it as the payer's consent to one session."""
        return PayerConsent(
            kind=ConsentKind.AUTHORIZATION, open_by_s=self.valid_before_s, signature=self.signature,
            exact=self.transfer,
        )  # fmt: skip


class Escrow(Protocol):
    """Opens holds and signs statements."""

    @property
    def exact_asset(self) -> ExactAsset:
        """What is asked of a client of x402's scheme exact."""
        ...

    async def why_unpayable(self, payment: ExactPayment) -> str | None:
        """Return why the contract could not take a payment now; None if it could.

        Checks the payer, its signature, whether the authorization is unused, and the payer's balance.

        Raises:
            RefusedError: RATE_LIMITED: the payer's budget of sponsored gas is used up.
            ChainUnavailableError: The chain does not answer.
        """
        ...

    async def permit_terms(self, owner: str, amount: MicroUsdc, deadline_s: int) -> PermitTerms:
        """Return what an owner signs to give the contract an allowance without gas.

        Raises:
            RefusedError: The token has no permit.
            ChainUnavailableError: The chain does not answer.
        """
        ...

    async def relay_permit(self, permit: SignedPermit, owner: str) -> AllowancePermit:
        """Send a permit of this owner to the token, and return it when it is in a block. Safe to repeat.

        Raises:
            RefusedError: INVALID_INPUT: it is another owner's, for another spender, expired or not signed by the owner.
                CONFLICT: the token has used its nonce. RATE_LIMITED: the budget of sponsored gas is used up.
            UnavailableError: It is not in a block yet. It may still be taken.
        """
        ...

    @property
    def mandates(self) -> Mandates:
        """The stored mandates."""
        ...

    async def require_mandate(self, mandate: SignedMandate, payer: str) -> None:
        """Refuse a mandate that a payer has not signed, or that is over.

        Raises:
            RefusedError: It is not valid.
            ChainUnavailableError: The chain does not answer.
        """
        ...

    async def held_today(self, mandate: SignedMandate) -> MicroUsdc:
        """Return what the contract has held under a mandate on this UTC day, also of sessions that cost less.

        Raises:
            ChainUnavailableError: The chain does not answer.
        """
        ...

    async def open_hold(self, session: Session) -> str:
        """Open the hold of a session, and return its transaction when it is in a block. Safe to repeat.

        Raises:
            RefusedError: The contract refuses it, for example because the payer's balance does not cover it.
            UnavailableError: It is not in a block yet. It may still be opened.
        """
        ...

    async def require_extension(self, session: Session, extension: SessionExtension) -> None:
        """Refuse an extension whose consent the contract would refuse, as far as it is known.

        Raises:
            RefusedError: The signature is not the payer's, or the mandate does not allow it.
            UnavailableError: The chain does not answer, or the session's hold is in no block now.
        """
        ...

    async def extend_hold(self, session: Session) -> str:
        """Add the amount that the session asks for to its hold; return the transaction when it is at its depth.

        Safe to repeat.

        Raises:
            RefusedError: The contract refuses it. It is given up.
            UnavailableError: It is not at its depth yet. It may still be added.
        """
        ...

    async def extension_typed_data(
        self, session: Session, amount: MicroUsdc, extend_by_s: int
    ) -> dict[ConsentKind, dict[str, Any]]:
        """Return what the payer signs to add an amount to a session's hold, by kind of consent.

        Raises:
            UnavailableError: The session's hold is in no block now.
        """
        ...

    def typed_data(self, terms: EscrowTerms) -> dict[ConsentKind, dict[str, Any]]:
        """Return what the payer signs for these terms, by kind of consent: the argument of eth_signTypedData_v4."""
        ...

    async def require_consent(self, terms: Terms) -> None:
        """Refuse a session whose consent the contract would refuse, as far as it is known before the start.

        Raises:
            RefusedError: The signature is not the payer's, or the hold could not be opened for long enough.
                RATE_LIMITED: the payer's budget of sponsored gas is used up.
            ChainUnavailableError: The chain does not answer.
        """
        ...

    async def statement(
        self, session_id: str, *, clean_seconds: int, head_hash: str, is_final: bool
    ) -> SignedStatement | None:
        """Sign a reading of the meter; None if the session has no open hold.

        Raises:
            UnavailableError, OutcomeUnknownError: The hold cannot be read.
        """
        ...
