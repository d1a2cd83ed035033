"""Pays for a POST with the official client of x402 for Python, and prints the answer; as buy.mjs does."""

import json
import os
import sys

from eth_account import Account
from x402 import x402ClientSync
from x402.http import decode_payment_response_header
from x402.http.clients import x402_requests
from x402.mechanisms.evm.exact import register_exact_evm_client

allowed = {"network": "eip155:*", "asset": os.environ["USDC"]}
if os.environ["X402_LIMIT"]:
    allowed["max_amount_per_payment"] = os.environ["X402_LIMIT"]
payer = x402ClientSync().set_spend_controls({"allowed_assets": [allowed]})
http = x402_requests(register_exact_evm_client(payer, Account.from_key(os.environ["EVM_KEY"])))
url, body, *keys = sys.argv[1:]
http.headers.update({"authorization": f"Bearer {keys[0]}"} if keys else {})
answer = http.post(url, json=json.loads(body))
paid = answer.headers.get("PAYMENT-RESPONSE")
result = {"status": answer.status_code, "body": answer.json(), "paid": None}
if paid is not None:
    result["paid"] = decode_payment_response_header(paid).model_dump(by_alias=True)
sys.stdout.write(json.dumps(result))
