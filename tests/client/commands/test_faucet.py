"""`sightline faucet` and `signup --fund`: which server's chain is paid, and that it is not the one that is used."""

import json
import re
from typing import Any

from tests.client.commands.program import sightline
from tests.http.world import open_world

WALLET = "0xe7f1725E7734CE288F8367e1Bb143E90bb3F0512"


async def test_the_faucet_names_the_server_that_it_paid_and_warns_of_another_one(dev: dict[str, Any]) -> None:
    where = ("--data-dir", dev["dataDir"])
    async with open_world() as world:
        world.rpc_result = b"null"
        same = await sightline(world, None, "faucet", WALLET, "1", *where, SIGHTLINE_URL=dev["url"] + "/")
        none = await sightline(world, None, "faucet", WALLET, "1", *where, SIGHTLINE_URL="http://127.0.0.1:9")
        other = await sightline(world, None, "faucet", WALLET, "1", *where)
        as_json = await sightline(world, None, "faucet", WALLET, "1", *where, "--json")
    named = f"on the chain of the server at {dev['url']} with the data directory {dev['dataDir']}\n"
    for done in (same, none, other):
        assert done.returncode == 0
        assert re.fullmatch(rf"{WALLET} got 1 test USDC in 0x\w{{64}}, {re.escape(named)}", done.stdout)
    assert (same.stderr, none.stderr) == ("", "")
    assert other.stderr == (
        f"SIGHTLINE_URL names another server, {world.base_url}, and the wallet got nothing on its chain. To pay there, "
        "name the data directory of that server with --data-dir.\n"
    )
    assert json.loads(as_json.stdout)["url"] == dev["url"]
    assert json.loads(as_json.stderr) == {"warning": other.stderr.strip()}


async def test_a_sign_up_whose_directory_is_of_another_server_says_so_and_what_exists(dev: dict[str, Any]) -> None:
    async with open_world() as world:
        world.rpc_result = b"null"
        done = await sightline(
            world, None, "signup", "--fund", "5", "--data-dir", dev["dataDir"], SIGHTLINE_WALLET_KEY=""
        )
    assert done.returncode == 1
    assert "export SIGHTLINE_API_KEY=" in done.stdout
    assert done.stderr.startswith(
        f"The workspace and its key exist, but {dev['dataDir']} is the data directory of another server, {dev['url']}: "
        f"the wallet got 5 test USDC on that one's chain, and nothing on that of {world.base_url}. To go on, run "
    )
    assert re.search(r"`sightline faucet 0x\w{40} 5 --data-dir DIRECTORY` with the data directory of", done.stderr)
    assert done.stderr.endswith("then `sightline approve 5` with the key and the wallet.\n")
