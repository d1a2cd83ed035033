"""A buyer who speaks x402 by hand, so that tests can change each part of a payment."""

import base64
import json
from dataclasses import dataclass
from typing import Any

import httpx2

from sightline_client.wallet import LocalWallet
from tests.e2e.server import PLACE

VIEW = {"lat": PLACE[0], "lng": PLACE[1], "maxDurationSeconds": 60}
VIEWS = "/api/v1/x402/views"
AUTHORIZATION = [
    ("from", "address"), ("to", "address"), ("value", "uint256"), ("validAfter", "uint256"),
    ("validBefore", "uint256"), ("nonce", "bytes32"),
]  # fmt: skip
DOMAIN = [("name", "string"), ("version", "string"), ("chainId", "uint256"), ("verifyingContract", "address")]


def decoded(header: str) -> dict[str, Any]:
    message: dict[str, Any] = json.loads(base64.b64decode(header))
    return message


def encoded(message: object) -> str:
    return base64.b64encode(json.dumps(message).encode()).decode()


def typed_data(accepted: dict[str, Any], authorization: dict[str, str]) -> dict[str, Any]:
    """What the wallet signs: the transfer in the token's domain."""
    return {
        "types": {
            "EIP712Domain": [{"name": name, "type": kind} for name, kind in DOMAIN],
            "TransferWithAuthorization": [{"name": name, "type": kind} for name, kind in AUTHORIZATION],
        },
        "primaryType": "TransferWithAuthorization",
        "domain": {
            "name": accepted["extra"]["name"],
            "version": accepted["extra"]["version"],
            "chainId": accepted["network"].removeprefix("eip155:"),
            "verifyingContract": accepted["asset"],
        },
        "message": authorization,
    }


@dataclass
class Buyer:
    """A wallet and a connection, without an account."""

    wallet: LocalWallet
    http: httpx2.AsyncClient

    async def ask(self, **view: Any) -> httpx2.Response:
        return await self.http.post(VIEWS, json=VIEW | view)

    async def asked(self, **view: Any) -> dict[str, Any]:
        """The only accepted way to pay."""
        answer = await self.ask(**view)
        assert answer.status_code == 402, answer.text
        (accepted,) = decoded(answer.headers["payment-required"])["accepts"]
        return dict(accepted)

    def signed(self, accepted: dict[str, Any], *, valid_before: int, nonce: int = 1, **changed: str) -> dict[str, Any]:
        """A payment. Members of the authorization can be changed before it is signed."""
        authorization = {
            "from": self.wallet.address, "to": accepted["payTo"], "value": accepted["amount"], "validAfter": "0",
            "validBefore": str(valid_before), "nonce": f"0x{nonce:064x}",
        } | changed  # fmt: skip
        signature = self.wallet.sign_typed_data(typed_data(accepted, authorization))
        payload = {"authorization": authorization, "signature": signature}
        return {"x402Version": 2, "accepted": accepted, "payload": payload}

    async def pay(self, payment: dict[str, Any], **view: Any) -> httpx2.Response:
        return await self.http.post(VIEWS, json=VIEW | view, headers={"PAYMENT-SIGNATURE": encoded(payment)})


def data_of(answer: httpx2.Response) -> dict[str, Any]:
    assert answer.status_code == 200, answer.text
    data: dict[str, Any] = answer.json()["data"]
    return data
