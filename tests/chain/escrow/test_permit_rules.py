"""Which permits are passed to the relayer, and how long a call waits for one, at the limits and one beside them."""

from dataclasses import dataclass, field
from typing import Any

import pytest
import trio
from eth_account import Account

from sightline.chain.contracts.messages import Permit, SigningDomain
from sightline.chain.permits import PermitRelay
from sightline.domain.errors import RefusedError, UnavailableError
from sightline.domain.refusal import Code
from sightline.domain.units import MicroUsdc
from sightline.domain.value import replace
from sightline.ports.escrow import AllowancePermit, SignedPermit
from sightline.ports.ledger import SettlementState

NOW_S, WAIT_S, LEAST_S = 1_700_000_000, 12, 30
TOKEN = SigningDomain(name="USD Coin", version="2", chain_id=7, contract="0x" + "aa" * 20)
SPENDER = "0x" + "Cc" * 20
OWNER, OTHER = Account.from_key(b"\x01" * 32), Account.from_key(b"\x02" * 32)


@dataclass
class Token:
    """The token as the service reads it."""

    nonce: bytes = (5).to_bytes(32)
    code_of_owner: bytes = b""
    gas: list[int] = field(default_factory=list)

    async def call(self, _to: str, _data: bytes, *, gas_cap: int = 0) -> bytes:
        self.gas.append(gas_cap)
        return self.nonce

    async def code(self, _address: str) -> bytes:
        return self.code_of_owner


@dataclass
class Outbox:
    """The rows of permits; each one gets these states one look after the other, and keeps the last."""

    states: list[SettlementState] = field(default_factory=lambda: [SettlementState.COMPOSED])
    rows: dict[str, AllowancePermit] = field(default_factory=dict)
    has_other: bool = False

    async def permit(self, permit_id: str) -> AllowancePermit | None:
        row = self.rows.get(permit_id)
        if row is None:
            return None
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        return replace(row, state=state, reason="paused")

    async def request(self, permit: AllowancePermit, *, now_ms: int) -> bool:
        assert now_ms == permit.retry_at_ms
        self.rows[permit.session_id] = permit
        return not self.has_other


@dataclass
class Surroundings:
    """A clock that stands still, and how often the relayer was woken."""

    ms: int = NOW_S * 1_000 + 999
    woken: int = 0
    budgets: list[str] = field(default_factory=list)

    def now_ms(self) -> int:
        return self.ms

    def wake(self) -> None:
        self.woken += 1

    async def require_budget(self, owner: str) -> None:
        self.budgets.append(owner)


def relay_of(token: Token, outbox: Outbox, around: Surroundings) -> PermitRelay:
    made: Any = PermitRelay
    relay: PermitRelay = made(outbox, token, TOKEN, SPENDER, clock=around)
    relay.require_budget, relay.wake_relayer = around.require_budget, around.wake
    return relay


def signed(account: Any = OWNER, **changed: Any) -> SignedPermit:
    fields: dict[str, Any] = {"nonce": 5, "deadline_s": NOW_S + LEAST_S, "amount": MicroUsdc(7), **changed}
    message = Permit(
        owner=OWNER.address.lower(), spender=SPENDER.lower(), value=fields["amount"], nonce=fields["nonce"],
        deadline_s=fields["deadline_s"],
    )  # fmt: skip
    signature = account.unsafe_sign_hash(TOKEN.digest(message)).signature
    return SignedPermit(owner=OWNER.address, spender=SPENDER, signature="0x" + bytes(signature).hex(), **fields)


async def refused(token: Token, permit: SignedPermit, outbox: Outbox | None = None) -> tuple[Code, str]:
    rows = outbox or Outbox()
    with pytest.raises(RefusedError) as caught:
        await relay_of(token, rows, Surroundings()).relay(permit, OWNER.address)
    return caught.value.refusal.code, caught.value.refusal.message or ""


async def test_a_permit_is_valid_for_thirty_seconds_at_least() -> None:
    around, taken = Surroundings(), Outbox([SettlementState.MINED])
    made = await relay_of(Token(), taken, around).relay(signed(), OWNER.address)
    assert (made.state, around.budgets) == (SettlementState.MINED, [OWNER.address.lower()])
    code, message = await refused(Token(), signed(deadline_s=NOW_S + LEAST_S - 1))
    assert (code, "at least 30 seconds" in message) == (Code.INVALID_INPUT, True)
    assert await relay_of(Token(), Outbox([SettlementState.MINED]), Surroundings()).relay(
        signed(deadline_s=NOW_S + 10**6), OWNER.address
    )


@pytest.mark.parametrize(
    ("nonce", "code", "words"),
    [(4, Code.CONFLICT, "has used the nonce 4"), (6, Code.INVALID_INPUT, "its nonce must be 5")],
)
async def test_a_permit_has_the_next_nonce_of_its_owner(nonce: int, code: Code, words: str) -> None:
    found, message = await refused(Token(), signed(nonce=nonce))
    assert (found, words in message) == (code, True)


async def test_a_signature_of_another_key_is_taken_only_of_an_owner_with_code() -> None:
    code, message = await refused(Token(), signed(OTHER))
    assert (code, "not that of its owner" in message) == (Code.INVALID_INPUT, True)
    relay = relay_of(Token(code_of_owner=b"\x60"), Outbox([SettlementState.MINED]), Surroundings())
    assert (await relay.relay(signed(OTHER), OWNER.address)).state is SettlementState.MINED


@pytest.mark.parametrize("length", [0, 31])
async def test_a_token_whose_answer_is_no_number_has_no_permit(length: int) -> None:
    assert (await refused(Token(nonce=bytes(length)), signed()))[0] is Code.NOT_FOUND


async def test_the_first_permit_of_an_owner_has_the_nonce_zero() -> None:
    relay = relay_of(Token(nonce=bytes(32)), Outbox([SettlementState.MINED]), Surroundings())
    assert (await relay.relay(signed(nonce=0), OWNER.address)).nonce == 0


async def test_a_permit_beside_another_one_with_its_nonce_is_a_conflict() -> None:
    assert (await refused(Token(), signed(), Outbox(has_other=True)))[0] is Code.CONFLICT


async def test_a_call_waits_twelve_seconds_and_wakes_the_relayer_ten_times_a_second(autojump_clock: Any) -> None:
    around, outbox = Surroundings(), Outbox()
    began = trio.current_time()
    with pytest.raises(UnavailableError):
        await relay_of(Token(), outbox, around).relay(signed(), OWNER.address)
    assert trio.current_time() - began == pytest.approx(WAIT_S)
    assert around.woken in (120, 121)


@pytest.mark.parametrize(
    "states",
    [
        [SettlementState.SIGNED, SettlementState.SENT, SettlementState.MINED],
        [SettlementState.STUCK, SettlementState.CONFIRMED],
    ],
)
async def test_a_call_waits_while_the_permit_is_on_its_way(autojump_clock: Any, states: list[SettlementState]) -> None:
    expected = states[-1]
    made = await relay_of(Token(), Outbox([*states]), Surroundings()).relay(signed(), OWNER.address)
    assert made.state is expected
    assert trio.current_time() < 1


@pytest.mark.parametrize("state", [SettlementState.FAILED, SettlementState.REVERTED, SettlementState.WRITTEN_OFF])
async def test_a_permit_that_the_token_refuses_ends_the_call_with_the_reason(
    autojump_clock: Any, state: SettlementState
) -> None:
    code, message = await refused(Token(), signed(), Outbox([state]))
    assert (code, "the token refuses it: paused" in message) == (Code.INVALID_INPUT, True)


async def test_a_repeat_of_a_permit_on_its_way_is_not_checked_again() -> None:
    token, outbox, around = Token(), Outbox([SettlementState.MINED]), Surroundings()
    relay = relay_of(token, outbox, around)
    await relay.relay(signed(), OWNER.address)
    asked = len(token.gas)
    outbox.states = [SettlementState.SENT, SettlementState.MINED]
    token.nonce = (6).to_bytes(32)
    assert (await relay.relay(signed(), OWNER.address)).state is SettlementState.MINED
    assert (len(token.gas), token.gas[1]) == (asked, 150_000)
