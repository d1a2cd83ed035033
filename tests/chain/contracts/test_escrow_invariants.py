"""SessionEscrow against a model, by random calls of everybody (Hypothesis). The contract's head lists the invariants.

SIGHTLINE_ESCROW_EXAMPLES sets the number of runs. The gate has a few with a fixed seed, `make nightly` many with new
seeds.
"""

import os
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sightline.chain.contracts.escrow import CLOSED, SKIPPED_TOPIC
from sightline.chain.contracts.messages import (
    INTERIM_DELAY_S,
    MAX_SECONDS,
    RECLAIM_DELAY_S,
    SLACK_S,
    EscrowHold,
    Mandate,
    SessionTerms,
)
from sightline.domain.value import replace
from tests.chain.contracts.escrow_world import ADMIN_DELAY_S, FUNDS, SESSION_CAP, EscrowWorld, escrow_world
from tests.chain.contracts.ground import DirectGround
from tests.chain.evm import RevertedError

EXAMPLES = int(os.environ.get("SIGHTLINE_ESCROW_EXAMPLES", "0"))
PAYERS, PAYEES = ("alice", "bob"), ("carol", "dave", "alice")
PARTIES = (*PAYERS, "carol", "dave", "feeReceiver")
SENDERS = (*PARTIES, "gas", "owner", "meter", "stranger")
METERS = ("meter", "standby")
DAY_S = 86_400

pytestmark = pytest.mark.timeout(6 * 3_600 if EXAMPLES else 600)


class EscrowMachine(RuleBasedStateMachine):
    """Calls the contract and a model of it; every call must succeed or fail as the model says."""

    ground: ClassVar[DirectGround]
    world: ClassVar[EscrowWorld]

    def __init__(self) -> None:
        super().__init__()
        self._undoing = self.ground.undone()
        self._undoing.__enter__()
        self.world.sessions = 0
        self.open: dict[bytes, EscrowHold] = {}
        self.closed: set[bytes] = set()
        self.worth: dict[str, int] = {name: FUNDS if name in PAYERS else 0 for name in PARTIES}
        self.stray = 0
        self.credit: dict[str, int] = defaultdict(int)
        self.blocked: set[str] = set()
        self.is_token_paused = False
        self.is_paused = False
        self.meters = set(METERS)
        self.mandates: list[tuple[Mandate, str]] = []
        self.revoked: set[bytes] = set()
        self.by_mandate: dict[tuple[bytes, int], int] = defaultdict(int)

    def teardown(self) -> None:
        """I6: whatever state this is in, a stranger returns all open holds once their time has come."""
        try:
            self._return_all()
        finally:
            self._undoing.__exit__(None, None, None)

    def _return_all(self) -> None:
        latest = max((hold.latest_end_s for hold in self.open.values()), default=self.ground.now_s)
        self.ground.wait(max(0, latest + RECLAIM_DELAY_S - self.ground.now_s))
        for hold in list(self.open.values()):
            self.world.call("reclaim", hold, sender="stranger")
            self._end(hold, 0)
        self.everything_adds_up()
        assert self.world.ask("totalHeld()") == 0

    # Helpers.

    def succeeds(self, function: str, *values: Any, sender: str) -> bool:
        try:
            self.world.call(function, *values, sender=sender)
        except RevertedError:
            return False
        return True

    def name_of(self, address: str) -> str:
        return next(name for name in PARTIES if self.world.address(name).lower() == address.lower())

    def takes(self, name: str) -> bool:
        return not self.is_token_paused and name not in self.blocked

    def _pay(self, name: str, amount: int) -> None:
        self.worth[name] += amount
        if amount and not self.takes(name):
            self.credit[name] += amount

    def _end(self, hold: EscrowHold, seconds: int, *, pays_fee: bool = True) -> int:
        """Close a hold in the model; returns the fee."""
        total = seconds * hold.rate
        fee = total * hold.fee_bps // 10_000
        assert total <= hold.rate * (self.ground.now_s - hold.opened_at_s + SLACK_S)  # I4
        assert total <= hold.max_amount
        self._pay(self.name_of(hold.payee), total - fee)
        self._pay(self.name_of(hold.payer), hold.max_amount - total)
        if pays_fee:
            self._pay("feeReceiver", fee)
        del self.open[hold.session_id_hash]
        self.closed.add(hold.session_id_hash)
        return fee

    def fits(self, hold: EscrowHold, seconds: int) -> bool:
        passed = self.ground.now_s - hold.opened_at_s
        return seconds <= passed + SLACK_S and seconds <= hold.max_amount // hold.rate

    def some_terms(self, data: st.DataObject, payer: str) -> SessionTerms:
        rate = data.draw(st.integers(1, 5_000), "rate")
        seconds = data.draw(st.integers(1, 900), "seconds")
        return self.world.terms(
            payer=self.world.address(payer), payee=self.world.address(data.draw(st.sampled_from(PAYEES), "payee")),
            rate=rate, max_amount=rate * seconds + data.draw(st.integers(0, rate - 1), "odd"),
            fee_bps=data.draw(st.integers(0, 3_000), "fee"),
        )  # fmt: skip

    # Opens and extensions.

    @initialize()
    def sign_mandates(self) -> None:
        for payer in PAYERS:
            mandate = self.world.mandate(
                payer=self.world.address(payer), max_per_session=3_000_000, max_per_day=4_000_000, max_rate=5_000,
                max_fee_bps=3_000,
            )  # fmt: skip
            self.mandates.append((mandate, payer))

    def _can_take(self, payer: str, amount: int) -> bool:
        return not self.is_paused and self.takes(payer) and self.worth[payer] - self.credit[payer] >= amount

    def _took(self, payer: str, amount: int) -> None:
        self.worth[payer] -= amount

    @rule(
        data=st.data(), payer=st.sampled_from(PAYERS), sender=st.sampled_from(SENDERS), meter=st.sampled_from(METERS),
        signer=st.sampled_from(("payer", "payer", "payer", "stranger", "other")),
        way=st.sampled_from(("authorization", "exact", "consent", "mandate")),
    )  # fmt: skip
    def open_hold(self, data: st.DataObject, payer: str, sender: str, meter: str, signer: str, way: str) -> None:
        """I5: nobody but the payer can sign. I7: a pause stops this. I8: any sender does. I9: the mandate's day."""
        world, terms = self.world, self.some_terms(data, payer)
        who = {"payer": payer, "stranger": "stranger", "other": PAYERS[payer == PAYERS[0]]}[signer]
        opening = world.opening(terms, meter=meter)
        expected = who == payer and meter in self.meters and self._can_take(payer, terms.max_amount)
        if way == "authorization":
            arguments: tuple[Any, ...] = (terms, terms.payee, world.authorized(who, terms), opening)
            function = "openWithAuthorization"
        elif way == "exact":
            function = "openExact"
            paid = world.transfer(who, terms.max_amount, sender=terms.payer)
            arguments = (*world.exact(terms, paid, who)[:-1], opening)
        elif way == "consent":
            function, arguments = "openWithConsent", (terms, terms.payee, world.signed(who, terms), opening)
        else:
            function = "openWithMandate"
            mandate = next(mandate for mandate, name in self.mandates if name == payer)
            arguments = (*world.mandated(terms, mandate, payer=who)[:-1], opening)
            day = (mandate.struct_hash(), self.ground.now_s // DAY_S)
            expected = (
                expected
                and mandate.struct_hash() not in self.revoked
                and self.ground.now_s < mandate.valid_until_s
                and terms.max_amount <= mandate.max_per_session
                and self.by_mandate[day] + terms.max_amount <= mandate.max_per_day
            )
            if expected:
                self.by_mandate[day] += terms.max_amount
        assert self.succeeds(function, *arguments, sender=sender) == expected
        if expected:
            self._took(payer, terms.max_amount)
            self.open[terms.session_id_hash] = EscrowHold(
                session_id_hash=terms.session_id_hash, payer=terms.payer, payee=terms.payee, rate=terms.rate,
                max_amount=terms.max_amount, fee_bps=terms.fee_bps, opened_at_s=self.ground.now_s,
            )  # fmt: skip

    def some_hold(self, data: st.DataObject) -> EscrowHold:
        return self.open[data.draw(st.sampled_from(sorted(self.open)), "session")]

    @precondition(lambda self: self.open)
    @rule(data=st.data(), sender=st.sampled_from(SENDERS), is_payers=st.sampled_from((True, True, True, False)))
    def extend_hold(self, data: st.DataObject, sender: str, is_payers: bool) -> None:
        world, hold = self.world, self.some_hold(data)
        payer = self.name_of(hold.payer)
        extra = data.draw(st.integers(1, 1_000_000), "extra")
        extension = world.extension(hold, extra)
        consent = world.signed(payer if is_payers else "stranger", extension)
        grown = replace(hold, max_amount=hold.max_amount + extra)
        expected = (
            is_payers
            and "meter" in self.meters
            and self._can_take(payer, extra)
            and self.ground.now_s < hold.latest_end_s
            and grown.max_amount <= SESSION_CAP
            and grown.max_amount // grown.rate <= MAX_SECONDS
        )
        arguments = (hold, extra, extension.extend_by_s, consent, world.signed("meter", extension))
        assert self.succeeds("extendWithConsent", *arguments, sender=sender) == expected
        if expected:
            self._took(payer, extra)
            self.open[hold.session_id_hash] = grown

    # Ends.

    def some_seconds(self, data: st.DataObject, hold: EscrowHold) -> int:
        """Seconds of a charge: mostly at the bounds that the contract has."""
        passed, held = self.ground.now_s - hold.opened_at_s, hold.max_amount // hold.rate
        at_bounds = st.sampled_from((0, passed, passed + SLACK_S, passed + SLACK_S + 1, held, held + 1, 2**256 - 1))
        return data.draw(st.one_of(at_bounds, st.integers(0, held)), "charged")

    @precondition(lambda self: self.open or self.closed)
    @rule(data=st.data(), sender=st.sampled_from(("meter", "standby", "gas", "alice", "stranger")))
    def capture_some(self, data: st.DataObject, sender: str) -> None:
        """I2 and I7: closed sessions and wrong numbers are skipped, and a pause stops nothing."""
        world = self.world
        ids = data.draw(st.lists(st.sampled_from(sorted([*self.open, *self.closed])), min_size=1, max_size=4), "ids")
        items = []
        for session in ids:
            hold = self.open.get(session, world.holds.get(session))
            if hold is None:
                hold = EscrowHold(
                    session_id_hash=session, payer=world.escrow, payee=world.escrow, max_amount=9, rate=1, fee_bps=0,
                    opened_at_s=self.ground.now_s,
                )  # fmt: skip
            items.append(world.item(hold, self.some_seconds(data, hold)))
        is_allowed = sender in self.meters or (sender not in METERS and "meter" in self.meters)
        try:
            done = (
                world.capture(*items, sender=sender)
                if sender in METERS
                else world.capture_signed(*items, sender=sender)
            )
        except RevertedError:
            assert not is_allowed
            return
        assert is_allowed
        skipped, fees = 0, 0
        for item in items:
            if item.hold.session_id_hash in self.open and self.fits(item.hold, item.clean_seconds):
                fees += self._end(item.hold, item.clean_seconds, pays_fee=False)
            else:
                skipped += 1
        self._pay("feeReceiver", fees)
        assert len(done.of(SKIPPED_TOPIC)) == skipped

    @precondition(lambda self: self.open)
    @rule(
        data=st.data(), sender=st.sampled_from(SENDERS), is_final=st.booleans(),
        signer=st.sampled_from(("meter", "meter", "meter", "standby", "stranger")),
    )  # fmt: skip
    def claim_one(self, data: st.DataObject, sender: str, is_final: bool, signer: str) -> None:
        hold = self.some_hold(data)
        seconds = self.some_seconds(data, hold)
        statement = self.world.statement(hold, seconds, is_final=is_final, meter=signer)
        is_time = is_final or self.ground.now_s >= hold.latest_end_s + INTERIM_DELAY_S
        expected = signer in self.meters and is_time and self.fits(hold, seconds)
        assert self.succeeds("claim", *statement, sender=sender) == expected
        if expected:
            self._end(hold, seconds)

    @precondition(lambda self: self.open)
    @rule(data=st.data(), sender=st.sampled_from(SENDERS))
    def reclaim_one(self, data: st.DataObject, sender: str) -> None:
        hold = self.some_hold(data)
        expected = self.ground.now_s >= hold.latest_end_s + RECLAIM_DELAY_S
        assert self.succeeds("reclaim", hold, sender=sender) == expected
        if expected:
            self._end(hold, 0)

    @rule(name=st.sampled_from(PARTIES), sender=st.sampled_from(SENDERS))
    def withdraw_credit(self, name: str, sender: str) -> None:
        expected = self.credit[name] > 0 and self.takes(name)
        assert self.succeeds("withdraw", self.world.address(name), sender=sender) == expected
        if expected:
            self.credit[name] = 0

    # What others do.

    @rule(seconds=st.sampled_from((1, 30, 30, 60, 60, 300, 300, 900, 3_600, 180_000)))
    def pass_time(self, seconds: int) -> None:
        self.ground.wait(seconds)

    @precondition(lambda self: self.open)
    @rule(data=st.data(), after_s=st.sampled_from((0, INTERIM_DELAY_S, RECLAIM_DELAY_S)), early_s=st.integers(0, 1))
    def wait_for_a_deadline(self, data: st.DataObject, after_s: int, early_s: int) -> None:
        until_s = self.some_hold(data).latest_end_s + after_s - early_s
        self.ground.wait(max(0, until_s - self.ground.now_s))

    @rule(name=st.sampled_from(PARTIES), is_blocked=st.sampled_from((False, False, True)))
    def block_party(self, name: str, is_blocked: bool) -> None:
        self.world.block(name, is_blocked)
        (self.blocked.add if is_blocked else self.blocked.discard)(name)

    @rule(is_paused=st.sampled_from((False, False, False, True)))
    def pause_token(self, is_paused: bool) -> None:
        self.world.send("owner", self.world.token, "setPaused(bool)", is_paused)
        self.is_token_paused = is_paused

    @rule(is_paused=st.sampled_from((False, False, False, True)))
    def pause_contract(self, is_paused: bool) -> None:
        self.world.send("owner", self.world.escrow, "setPaused(bool)", is_paused)
        self.is_paused = is_paused

    @precondition(lambda self: len(self.meters) == len(METERS))
    @rule(meter=st.sampled_from(METERS))
    def remove_meter(self, meter: str) -> None:
        self.world.send("owner", self.world.escrow, "removeMeter(address)", self.world.address(meter))
        self.meters.discard(meter)

    @precondition(lambda self: len(self.meters) < len(METERS))
    @rule(meter=st.sampled_from(METERS))
    def bring_a_meter_back(self, meter: str) -> None:
        address = self.world.address(meter)
        self.world.send("owner", self.world.escrow, "proposeMeter(address)", address)
        self.ground.wait(ADMIN_DELAY_S)
        self.world.send("owner", self.world.escrow, "allowMeter(address)", address)
        self.meters.add(meter)

    @rule(number=st.integers(0, 1), by_signature=st.booleans(), is_payers=st.booleans())
    def revoke_mandate(self, number: int, by_signature: bool, is_payers: bool) -> None:
        mandate, payer = self.mandates[number]
        who = payer if is_payers else "stranger"
        if by_signature:
            signature = self.world.signed(who, self.world.revocation(mandate))
            succeeded = self.succeeds("revokeMandateFor", mandate, signature, sender="gas")
        else:
            succeeded = self.succeeds("revokeMandate", mandate, sender=who)
        assert succeeded == is_payers
        if is_payers:
            self.revoked.add(mandate.struct_hash())

    @precondition(lambda self: not self.is_token_paused)
    @rule(amount=st.integers(1, 1_000))
    def send_stray(self, amount: int) -> None:
        self.world.fund(self.world.escrow, amount)
        self.stray += amount

    @rule(amount=st.integers(0, 1_500), number=st.integers(0, 5))
    def return_stray(self, amount: int, number: int) -> None:
        reference = number.to_bytes(32)
        is_used = self.world.ask("isStrayReturned(bytes32)", reference) == 1
        expected = not is_used and "meter" in self.meters and amount <= self.stray and not self.is_token_paused
        try:
            self.world.return_stray("stranger", amount, reference)
        except RevertedError:
            assert not expected
        else:
            assert expected
            self.stray -= amount

    # Invariants.

    @invariant()
    def everything_adds_up(self) -> None:
        """I1, I3: what everybody has, what is held and what is owed are the model's, to the last micro-USDC."""
        world = self.world
        held = sum(hold.max_amount for hold in self.open.values())
        assert (world.ask("totalHeld()"), world.ask("totalCredit()")) == (held, sum(self.credit.values()))
        assert world.stray() == self.stray >= 0
        assert {name: world.worth(name) for name in PARTIES} == self.worth
        assert {name: world.credit(name) for name in PARTIES} == {name: self.credit[name] for name in PARTIES}

    @invariant()
    def sessions_only_move_forward(self) -> None:
        """I2."""
        for hold in self.open.values():
            assert self.world.state(hold) == hold.hash()
        for session in self.closed:
            assert self.world.ask("stateOf(bytes32)", session).to_bytes(32) == CLOSED

    @invariant()
    def days_of_mandates_are_bounded(self) -> None:
        """I9."""
        for mandate, _ in self.mandates:
            day = self.ground.now_s // DAY_S
            opened = self.world.ask("openedOnDay(bytes32,uint256)", mandate.struct_hash(), day)
            assert opened == self.by_mandate[mandate.struct_hash(), day] <= mandate.max_per_day


EscrowMachine.TestCase.settings = settings(
    max_examples=EXAMPLES or 40, stateful_step_count=50 if EXAMPLES else 25, deadline=None, derandomize=not EXAMPLES,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)  # fmt: skip


class TestSessionEscrow(EscrowMachine.TestCase):
    """Runs the machine. All examples share the contracts; each undoes what it has done."""

    @classmethod
    def setUpClass(cls) -> None:
        cls.directory = tempfile.TemporaryDirectory(prefix="sightline-")
        EscrowMachine.ground = DirectGround(Path(cls.directory.name))
        EscrowMachine.world = escrow_world(EscrowMachine.ground)
        for payer in PAYERS:
            EscrowMachine.world.fund(payer)
            EscrowMachine.world.approve(payer)

    @classmethod
    def tearDownClass(cls) -> None:
        EscrowMachine.ground.close()
        cls.directory.cleanup()
