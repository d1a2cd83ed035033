"""Takes permits (EIP-2612) of payers, checks them against the token, and has the relayer send them."""

import uuid
from collections.abc import Awaitable, Callable
from typing import Final, final

import trio
from eth_utils.address import to_checksum_address

from sightline.chain.contracts.abi import address_topic, call_data
from sightline.chain.contracts.messages import Permit, SigningDomain
from sightline.chain.relayer.permits import PERMIT_GAS, permit_data
from sightline.chain.rpc.reader import hex_bytes
from sightline.domain.addresses import recovered_address
from sightline.domain.errors import RefusedError, UnavailableError
from sightline.domain.refusal import Code, Refusal
from sightline.domain.units import SECOND_MS, MicroUsdc
from sightline.ports.chain import CallRevertedError, ChainReader
from sightline.ports.clock import Clock
from sightline.ports.escrow import AllowancePermit, PermitOutbox, PermitTerms, SignedPermit
from sightline.ports.ledger import SettlementState

PERMIT_WAIT_S: Final = 12.0
"""How long a call waits for the permit's transaction. Afterwards it can be repeated; the permit is still sent."""
PERMIT_LEAST_S: Final = 30
"""A permit must be valid for this long: its transaction has to be mined."""
LOOK_EVERY_S: Final = 0.1
"""How often a call looks for the transaction."""
_TAKEN: Final = (SettlementState.MINED, SettlementState.CONFIRMED)
_ON_ITS_WAY: Final = (SettlementState.COMPOSED, SettlementState.SIGNED, SettlementState.SENT, SettlementState.STUCK)


@final
class PermitRelay:
    """Relays permits for one spender. The outbox decides what is sent; each permit is sent once."""

    def __init__(
        self, permits: PermitOutbox, reader: ChainReader, token: SigningDomain, spender: str, *, clock: Clock
    ) -> None:
        self._permits = permits
        self._reader = reader
        self._token = token
        self._spender = spender
        self._clock = clock
        self.require_budget: Callable[[str], Awaitable[None]]
        """Refuses an owner whose sponsored gas is used up."""
        self.wake_relayer: Callable[[], None] = lambda: None

    async def terms(self, owner: str, amount: MicroUsdc, deadline_s: int) -> PermitTerms:
        """Return what an owner signs to give the spender an allowance."""
        nonce = await self._nonce(owner)
        message = Permit(
            owner=owner.lower(), spender=self._spender, value=amount, nonce=nonce, deadline_s=deadline_s
        )  # fmt: skip
        return PermitTerms(
            owner=to_checksum_address(owner), spender=to_checksum_address(self._spender), amount=amount, nonce=nonce,
            deadline_s=deadline_s, typed_data=self._token.typed_data(message),
        )  # fmt: skip

    async def relay(self, signed: SignedPermit, owner: str) -> AllowancePermit:
        """Send a permit of this owner, and return it when it is in a block."""
        permit, digest = self._row(signed)
        stored = await self._permits.permit(permit.session_id)
        if stored is None or stored.state not in (*_TAKEN, *_ON_ITS_WAY):
            await self._require_valid(permit, digest, owner)
            if not await self._permits.request(permit, now_ms=self._clock.now_ms()):
                raise RefusedError(_conflict("Another permit with this nonce is on its way"))
        with trio.move_on_after(PERMIT_WAIT_S):
            while True:
                self.wake_relayer()
                stored = await self._permits.permit(permit.session_id)
                assert stored is not None, "it was asked for"
                if stored.state in _TAKEN:
                    return stored
                if stored.state not in _ON_ITS_WAY:
                    raise RefusedError(_invalid(f"the token refuses it: {stored.reason}"))
                await trio.sleep(LOOK_EVERY_S)
        raise UnavailableError("the permit is not in a block yet; repeat the call")

    def _row(self, signed: SignedPermit) -> tuple[AllowancePermit, bytes]:
        message = Permit(
            owner=signed.owner.lower(), spender=signed.spender.lower(), value=signed.amount, nonce=signed.nonce,
            deadline_s=signed.deadline_s,
        )  # fmt: skip
        digest, now_ms = self._token.digest(message), self._clock.now_ms()
        permit = AllowancePermit(
            session_id=str(uuid.UUID(bytes=digest[:16])), session_id_hash=address_topic(message.owner),
            owner=message.owner, spender=message.spender, amount=signed.amount, nonce=signed.nonce,
            deadline_s=signed.deadline_s, signature=signed.signature, state=SettlementState.COMPOSED, reason=None,
            tx_hash=None, block_number=None, block_hash=None, confirmed_at_ms=None, retry_at_ms=now_ms, tries=0,
            notified=True, composed_at_ms=now_ms, updated_at_ms=now_ms,
        )  # fmt: skip
        return permit, digest

    async def _require_valid(self, permit: AllowancePermit, digest: bytes, owner: str) -> None:
        """Refuse a permit that the token would refuse, or that is not for this owner and spender."""
        if permit.owner != owner.lower():
            raise RefusedError(_invalid(f"its owner is not the workspace's wallet {to_checksum_address(owner)}"))
        if permit.spender != self._spender.lower():
            raise RefusedError(_invalid(f"its spender must be the contract {to_checksum_address(self._spender)}"))
        if permit.deadline_s < self._clock.now_ms() // SECOND_MS + PERMIT_LEAST_S:
            raise RefusedError(_invalid(f"its deadline must be at least {PERMIT_LEAST_S} seconds from now"))
        signature = hex_bytes(permit.signature)
        if recovered_address(digest, signature) != permit.owner and not await self._reader.code(permit.owner):
            raise RefusedError(_invalid("the signature is not that of its owner over these numbers"))
        nonce = await self._nonce(permit.owner)
        if permit.nonce < nonce:
            raise RefusedError(_conflict(f"The token has used the nonce {permit.nonce}; the next one is {nonce}"))
        if permit.nonce > nonce:
            raise RefusedError(_invalid(f"its nonce must be {nonce}"))
        message = Permit(
            owner=permit.owner, spender=permit.spender, value=permit.amount, nonce=permit.nonce,
            deadline_s=permit.deadline_s,
        )  # fmt: skip
        try:
            await self._reader.call(self._token.contract, permit_data(message, signature), gas_cap=PERMIT_GAS)
        except CallRevertedError as error:
            raise RefusedError(_invalid(f"the token refuses it: {error.reason}")) from error
        await self.require_budget(permit.owner)

    async def _nonce(self, owner: str) -> int:
        try:
            answer = await self._reader.call(self._token.contract, call_data("nonces(address)", [owner]))
        except CallRevertedError as error:
            raise RefusedError(_no_permit(self._token.contract)) from error
        if len(answer) < 32:
            raise RefusedError(_no_permit(self._token.contract))
        return int.from_bytes(answer, "big")


def _no_permit(token: str) -> Refusal:
    return Refusal(Code.NOT_FOUND, "wallet:permit", f"The token {token} has no permit (EIP-2612): use approve")


def _invalid(reason: str) -> Refusal:
    return Refusal(Code.INVALID_INPUT, "wallet:permit", f"The permit is not valid: {reason}")


def _conflict(message: str) -> Refusal:
    return Refusal(Code.CONFLICT, "wallet:permitNonce", message)
