"""What the commands say of payments and times."""

import json
from copy import deepcopy
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Final

import pytest

from sightline_client import Receipt
from sightline_client.commands.funds import spendable_now
from sightline_client.commands.printing import payment_text, time_text
from sightline_client.models import StoredMandate, Wallet
from tests.client.commands.program import sightline
from tests.http.world import open_world

VECTORS: Final = Path(__file__).parents[3] / "docs" / "vectors" / "receipts.json"
PAID: Final[dict[str, Any]] = json.loads(VECTORS.read_text())["receipts"][0]["receipt"]
TX: Final = PAID["settlement"]["txHash"]


def test_json_of_a_wallet_says_what_may_be_spent_under_the_mandate_and_with_a_signature() -> None:
    amounts = {"trackedBalance": "9000000", "trackedAllowance": "5000000", "heldMicroUsdc": "1000000"}
    of = {"workspaceId": "w", "walletAddress": "0x1", "lastSyncBlock": "1", "updatedAt": "2026-01-01T00:00:00Z"}
    wallet = Wallet.model_validate(of | amounts | {"availableMicroUsdc": "4000000"})
    terms = {"payer": "0x1", "maxPerSession": "3000000", "maxPerDay": "5000000", "heldToday": "2500000"}
    rest = {"maxRatePerSecond": "9", "maxFeeBps": 1, "validUntil": 32_503_680_000, "salt": "0x2"}
    mandate = StoredMandate.model_validate(terms | rest)
    said = spendable_now(wallet, True, mandate)
    assert said["mandate"] == terms | rest | {"leftToday": "2500000"}
    assert (said["spendableMicroUsdc"], said["spendableSignedMicroUsdc"]) == ("2500000", "8000000")
    over = mandate.model_copy(update={"valid_until": 1})
    for unusable in (over, None):
        said = spendable_now(wallet, True, unusable)
        assert (said["spendableMicroUsdc"], said["mandate"] is None) == ("0", unusable is None)
    assert spendable_now(wallet, False, None) == {"spendableMicroUsdc": "4000000"}


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


async def test_a_second_signup_with_a_wallet_names_its_workspace_and_a_wrong_slug_is_told_in_words() -> None:
    key = {"SIGHTLINE_WALLET_KEY": "0x" + "45" * 32}
    async with open_world() as world:
        made = json.loads((await sightline(world, None, "signup", "--json", **key)).stdout)
        again = await sightline(world, None, "signup", **key)
        taken = await sightline(world, None, "signup", "--slug", made["slug"], SIGHTLINE_WALLET_KEY="")
        wrong = await sightline(world, None, "signup", "--slug", "A B", **key)
    assert again.stderr == (
        f"This wallet has the workspace {made['slug']} already. `sightline login --workspace {made['slug']}` mints a "
        "key for it; --slug names another workspace.\n"
    )
    assert "The slug is taken: choose another one with --slug." in taken.stderr
    assert "--slug must be 3 to 32 lowercase letters, digits and hyphens" in wrong.stderr
    assert "pattern" not in wrong.stderr


async def test_keys_are_a_table_and_the_id_of_a_new_one_is_named() -> None:
    key = {"SIGHTLINE_WALLET_KEY": "0x" + "46" * 32}
    async with open_world() as world:
        await sightline(world, None, "signup", **key)
        minted = await sightline(world, None, "keys", "mint", "a longer label", **key)
        listed = (await sightline(world, None, "keys", "list", **key)).stdout.splitlines()
        key_id = next(line for line in listed if "a longer label" in line).split()[0]
        own = await sightline(world, None, "keys", "list", **key, SIGHTLINE_API_KEY=minted.stdout.strip())
        wrong = await sightline(world, None, "keys", "mint", "agent", "--scope", "nope", **key)
        unknown = await sightline(world, None, "keys", "revoke", "3fe8a2b0-1c1f-4a6e-9d61-0c9a8d7e6f50", **key)
    assert minted.stderr == f"Its id is {key_id}; `sightline keys revoke {key_id}` revokes it.\n"
    assert len(minted.stdout.splitlines()) == 1
    assert own.stderr == f"That of SIGHTLINE_API_KEY is {key_id}.\n"
    assert "(apiKey:scopes): --scope must be 'sessions:read', " in wrong.stderr
    title, *rows = listed
    assert title.split() == ["id", "begins", "state", "created", "last", "used", "label", "scopes,", "limits"]
    for row in rows:
        assert row.index("valid") == title.index("state")
        assert row[title.index("last used") :].startswith("never")
        assert row[title.index("label") :].startswith(("a longer label  ", "signup          "))
    assert unknown.stderr == (
        "The workspace has no key 3fe8a2b0-1c1f-4a6e-9d61-0c9a8d7e6f50. `sightline keys list` shows its keys.\n"
    )
