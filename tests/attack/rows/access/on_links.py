"""Attacks by a link that somebody opens."""

import trio
from eth_account import Account

from tests.attack.catalogue import attack
from tests.attack.target import Target
from tests.console.people import a_browser, a_tab

WALLET_OF_BROWSER = "localStorage.getItem('sightline.testWallet')"


@attack("C2", "A link signs a browser in with the wallet of whoever made it", before="signed in without a question")
async def link_with_a_wallet(target: Target) -> str:
    return await trio.to_thread.run_sync(_open_link, target.server.url)


def _open_link(url: str) -> str:
    account = Account.create()
    with a_browser() as browser, a_tab(browser, url) as tab:
        tab.page.goto(f"{url}/console/#/start?testWallet=0x{bytes(account.key).hex()}")
        tab.shows(".banner", account.address)
        assert tab.page.evaluate(WALLET_OF_BROWSER) is None, "the browser has taken the wallet of the link"
        tab.click("#refuse-linked")
        tab.shows("#test-wallet")
        assert tab.page.evaluate(WALLET_OF_BROWSER) is None, "the browser has taken the wallet that was refused"
    return "the address is shown and asked for; refused, nothing is kept"
