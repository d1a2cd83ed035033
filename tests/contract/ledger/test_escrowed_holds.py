"""A hold that the contract took and returned holds nothing, in whatever blocks the watcher reads it.

The daily limit of an API key counts the whole hold until the session ends, and its charge from then on.
"""

from dataclasses import dataclass

import pytest

from sightline.domain.value import replace
from sightline.ports.ledger import FundsPolicy
from sightline.storage.database.bridge import Database
from sightline.storage.postgres.money.ledger import PostgresLedger
from sightline.system.keccak import session_id_hash
from tests.contract.ledger.ledgers import PAYER, SESSION, a_block, a_payload, an_application, apply

KEY = "77777777-7777-4777-8777-777777777777"


async def test_a_cancelled_hold_that_is_opened_and_closed_in_blocks_read_at_once_is_not_in_escrow(
    database: Database,
) -> None:
    """The session was cancelled while its open was on its way."""
    ledger = PostgresLedger(database)
    await ledger.take_hold(SESSION, PAYER, 60, FundsPolicy.ADVISORY, now_ms=0)
    await ledger.release_hold(SESSION)
    blocks = an_application(a_block(2), settled=(SESSION,))
    await apply(ledger, replace(blocks, escrowed=((session_id_hash(SESSION), 1),)), now_ms=1)
    row = await database.read(
        lambda connection: connection.fetchrow("SELECT state, escrowed_block, released_block FROM hold")
    )
    assert dict(row) == {"state": "RELEASED", "escrowed_block": 1, "released_block": 2}


@dataclass
class KeysHold:
    """A hold of 60 that counts against the limit of an API key."""

    ledger: PostgresLedger

    async def spent(self) -> int:
        return await self.ledger.spent_by_key(KEY, now_ms=0)

    async def taken_in(self, block: int) -> None:
        application = replace(an_application(a_block(block)), escrowed=((session_id_hash(SESSION), block),))
        await apply(self.ledger, application, now_ms=1)


@pytest.fixture
async def hold(database: Database) -> KeysHold:
    hold = KeysHold(PostgresLedger(database))
    await hold.ledger.take_hold(SESSION, PAYER, 60, FundsPolicy.ADVISORY, now_ms=0)
    opening = """
    INSERT INTO hold_opening (session_id, session_id_hash, payer, payee, max_amount, rate, fee_bps, consent, state,
      composed_at_ms, updated_at_ms)
    SELECT session_id, session_id_hash, payer, payer, 60, 1, 0, '{}', 'COMPOSED', 0, 0 FROM hold
    """
    await database.run(lambda connection: connection.execute(opening))
    await database.run(lambda connection: connection.execute("UPDATE hold SET key_id = $1, key_day = 0", KEY))
    await apply(hold.ledger, an_application(a_block(1)), now_ms=1)
    assert await hold.spent() == 60
    return hold


async def test_a_key_has_spent_the_charge_and_not_the_hold_once_the_session_has_ended(hold: KeysHold) -> None:
    await hold.taken_in(2)
    assert await hold.spent() == 60
    await hold.ledger.charge_hold(SESSION, 25)
    assert await hold.spent() == 25
    await apply(hold.ledger, an_application(a_block(3), settled=(SESSION,)), now_ms=1)
    assert await hold.spent() == 25


@pytest.mark.parametrize("is_taken_first", [True, False])
async def test_a_key_has_spent_nothing_for_a_session_without_a_charge(hold: KeysHold, is_taken_first: bool) -> None:
    if is_taken_first:
        await hold.taken_in(2)
    await hold.ledger.release_hold(SESSION)
    assert await hold.spent() == 0
    if not is_taken_first:
        await hold.taken_in(2)
    assert await hold.spent() == 0


async def test_a_hold_whose_block_is_rolled_back_reserves_all_that_the_contract_takes_again(hold: KeysHold) -> None:
    await hold.taken_in(2)
    await hold.ledger.charge_hold(SESSION, 40)
    await hold.ledger.compose(a_payload(to_amount=34, fee_amount=6), now_ms=1)
    assert await hold.spent() == 40
    await hold.ledger.roll_back(a_block(1), cursor=a_block(2), now_ms=2)
    assert await hold.spent() == 60
    await hold.taken_in(2)
    assert await hold.spent() == 40
