"""Signing in by a wallet extension, and by the link of the demo."""

from typing import Any

import httpx
from eth_account import Account
from eth_account.messages import encode_defunct
from playwright.sync_api import Browser, expect

from tests.console.people import ConsoleServer, Tab, a_tab, sign_up

ANNOUNCE = """
const icon = "data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg'/>";
const info = {uuid: "5f1b6f0c-6f3c-4e1e-9a55-0a7b1a2f3c4d", name: "Harbour Wallet", icon, rdns: "org.example.wallet"};
const provider = {request: ({method, params}) => window.askWallet(method, params ?? [])};
const announce = () => dispatchEvent(new CustomEvent("eip6963:announceProvider", {detail: {info, provider}}));
addEventListener("eip6963:requestProvider", announce);
"""


class Wallet:
    """A wallet extension (EIP-6963): eth-account signs, and transactions reach the chain."""

    def __init__(self, tab: Tab) -> None:
        self._url = tab.url
        self._account = Account.create()
        self.asked: list[str] = []
        tab.page.expose_function("askWallet", self.request)
        tab.page.add_init_script(ANNOUNCE)

    @property
    def address(self) -> str:
        return str(self._account.address)

    def request(self, method: str, params: list[Any]) -> Any:
        """Answer a request of the page as EIP-1193 describes."""
        self.asked.append(method)
        match method:
            case "eth_requestAccounts":
                return [self.address]
            case "eth_chainId":
                return self._rpc("eth_chainId")
            case "personal_sign":
                signed = self._account.sign_message(encode_defunct(hexstr=params[0]))
                return "0x" + bytes(signed.signature).hex()
            case "eth_sendTransaction":
                return self._send(params[0])
        raise ValueError(f"the wallet does not know {method}")

    def _send(self, call: dict[str, str]) -> str:
        price = int(self._rpc("eth_gasPrice"), 16)
        transaction = {
            "to": call["to"],
            "data": call["data"],
            "value": 0,
            "nonce": int(self._rpc("eth_getTransactionCount", self.address, "latest"), 16),
            "gas": 2 * int(self._rpc("eth_estimateGas", call), 16),
            "maxFeePerGas": 2 * price,
            "maxPriorityFeePerGas": price // 2,
            "chainId": int(self._rpc("eth_chainId"), 16),
        }
        signed = self._account.sign_transaction(transaction)
        return str(self._rpc("eth_sendRawTransaction", "0x" + bytes(signed.raw_transaction).hex()))

    def _rpc(self, method: str, *params: Any) -> Any:
        call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": list(params)}
        answer = httpx.post(f"{self._url}/rpc", json=call).json()
        assert "error" not in answer, answer
        return answer["result"]


def test_a_wallet_extension_signs_in_and_sends_the_allowance(browser: Browser, server: ConsoleServer):
    with a_tab(browser, server.url) as tab:
        wallet = Wallet(tab)
        tab.page.goto(tab.url)
        tab.click("button:has-text('Harbour Wallet')")
        tab.page.fill("#workspace-name", "Harbour Watch")
        tab.click("#create-workspace")
        tab.click("#faucet")
        tab.click("#approve")
        tab.shows("#to-buy")
        assert wallet.asked.count("personal_sign") == 2
        assert "eth_sendTransaction" in wallet.asked
        shown = tab.page.evaluate("fetch('/api/v1/wallet').then((a) => a.json()).then((b) => b.data.trackedAllowance)")
        assert shown == "10000000"
        assert tab.page.evaluate("localStorage.getItem('sightline.testWallet')") is None
        assert tab.problems == []


def test_the_first_allowance_is_one_of_three_amounts_or_a_typed_one(browser: Browser, server: ConsoleServer):
    with a_tab(browser, server.url) as tab:
        sign_up(tab, "Harbour Watch", "CONSUMER")
        tab.click("#faucet")
        tab.shows("#approve", "Allow up to 10.00")
        tab.click(".amounts button:has-text('25')")
        tab.shows("#approve", "Allow up to 25.00")
        for nothing in ("0", "all"):
            tab.page.fill("#first-allowance", nothing)
            expect(tab.page.locator("#approve")).to_be_disabled()
            tab.shows(".bad", "An amount, for example 5.00")
        tab.page.fill("#first-allowance", "0.001")
        tab.page.keyboard.press("Enter")
        tab.shows(".banner.warn:has(#raise-limit)", "That pays no view of a minute yet")
        expect(tab.page.locator("main")).not_to_contain_text("Everything is set up")
        tab.click("#raise-limit")
        tab.page.fill("#allowance", "7,5")
        tab.page.keyboard.press("Enter")
        tab.shows(".notice", "The spending limit is set")
        tab.go("start")
        tab.shows("main", "Everything is set up")
        expect(tab.page.locator("#raise-limit")).to_have_count(0)
        shown = tab.page.evaluate("fetch('/api/v1/wallet').then((a) => a.json()).then((b) => b.data.trackedAllowance)")
        assert shown == "7500000"
        assert tab.problems == []


def test_the_link_of_the_demo_asks_before_it_signs_in_and_leaves_the_address(browser: Browser, server: ConsoleServer):
    account = Account.create()
    key = "0x" + bytes(account.key).hex()
    with a_tab(browser, server.url) as tab:
        tab.page.goto(f"{tab.url}/console/#/start?testWallet={key}")
        tab.shows(".banner", account.address)
        assert tab.page.evaluate("localStorage.getItem('sightline.testWallet')") is None
        tab.click("#refuse-linked")
        tab.shows("#test-wallet")
        tab.page.goto("about:blank")
        tab.page.goto(f"{tab.url}/console/#/start?testWallet={key}")
        tab.click("#use-linked")
        tab.shows("#create-workspace")
        tab.shows(".step.done", account.address[:6])
        assert key not in tab.page.url
        assert key[2:] not in server.log
        other = "0x" + bytes(Account.create().key).hex()
        tab.page.goto("about:blank")
        tab.page.goto(f"{tab.url}/console/#/start?testWallet={other}")
        tab.shows(".notice.bad", "already has a test wallet")
        expect(tab.page.locator(".step.done").first).to_contain_text(account.address[:6])
        assert tab.problems == []
