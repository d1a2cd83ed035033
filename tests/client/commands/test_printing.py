"""What the commands say of payments and times."""

import json
from copy import deepcopy
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Final

import pytest

from sightline_client import Receipt
from sightline_client.commands.printing import payment_text, time_text
from tests.client.commands.program import sightline
from tests.http.world import open_world

VECTORS: Final = Path(__file__).parents[3] / "docs" / "vectors" / "receipts.json"
PAID: Final[dict[str, Any]] = json.loads(VECTORS.read_text())["receipts"][0]["receipt"]
TX: Final = PAID["settlement"]["txHash"]


@pytest.mark.parametrize(
    ("charged", "tx_hash", "is_escrow", "said"),
    [
        (None, TX, True, f"paid in {TX}"),
        ("0", TX, True, f"nothing to pay, hold returned in {TX}"),
        ("0", TX, False, f"nothing to pay, recorded in {TX}"),
        ("0", None, True, "nothing to pay"),
    ],
)
def test_a_transaction_that_only_returned_the_hold_is_not_called_a_payment(
    charged: str | None, tx_hash: str | None, is_escrow: bool, said: str
) -> None:
    data = deepcopy(PAID)
    data["session"]["chargedMicroUsdc"] = charged or data["session"]["chargedMicroUsdc"]
    data["settlement"]["txHash"] = tx_hash
    assert payment_text(Receipt(data), is_escrow=is_escrow) == said


def test_a_time_is_in_utc_and_to_the_second_whatever_its_zone() -> None:
    at = datetime(2026, 11, 26, 1, 2, 3, 987_000, tzinfo=timezone(timedelta(hours=2)))
    assert time_text(at) == "2026-11-25T23:02:03Z"


@pytest.mark.parametrize(
    ("role", "said"), [("CONSUMER", "its views are paid by 0x"), ("SUPPLIER", "what it films is paid to 0x")]
)
async def test_signup_says_what_the_wallet_of_the_role_is_for(role: str, said: str) -> None:
    async with open_world() as world:
        done = await sightline(world, None, "signup", "--role", role, SIGHTLINE_WALLET_KEY="")
    assert done.returncode == 0, done.stderr
    assert said in done.stdout
    assert ("films" in done.stdout) == (role == "SUPPLIER")
