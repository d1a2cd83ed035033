"""A hold that the contract took and returned holds nothing, in whatever blocks the watcher reads it."""

from sightline.domain.value import replace
from sightline.ports.ledger import FundsPolicy
from sightline.storage.database.bridge import Database
from sightline.storage.postgres.money.ledger import PostgresLedger
from sightline.system.keccak import session_id_hash
from tests.contract.ledger.ledgers import PAYER, SESSION, a_block, an_application, apply


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
