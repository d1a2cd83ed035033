"""Look at a place for some USDC, without an account. It pays for at most 20 seconds; what was not used returns.

pip install 'x402[evm,requests]==2.25.0'
export EVM_KEY=0x... USDC=0x...     # the key of a wallet with USDC, and usdcAddress of GET /api/v1/config
python examples/x402_view.py http://127.0.0.1:8080 52.520008 13.404954 > frame.jpg
"""

import os
import sys
import time

from eth_account import Account
from x402 import x402ClientSync
from x402.http.clients import x402_requests
from x402.mechanisms.evm.exact import register_exact_evm_client

sys.excepthook = lambda kind, error, _: print(f"{kind.__name__}: {error}", file=sys.stderr)  # one line
if len(sys.argv) != 4 or not {"EVM_KEY", "USDC"} <= os.environ.keys():
    sys.exit(__doc__)
ALLOWED = {"network": "eip155:*", "asset": os.environ["USDC"].strip(), "max_amount_per_payment": "200000"}
payer = x402ClientSync().set_spend_controls({"allowed_assets": [ALLOWED]})  # refuses more than 0.20 USDC
http = x402_requests(register_exact_evm_client(payer, Account.from_key(os.environ["EVM_KEY"].strip())))
place = {"lat": float(sys.argv[2]), "lng": float(sys.argv[3]), "maxDurationSeconds": 20}
answer = http.post(f"{sys.argv[1]}/api/v1/x402/views", json=place)
if answer.status_code != 200:
    sys.exit(f"{answer.status_code} {answer.text}")  # says what is wrong and what to do
view = answer.json()["data"]
http.headers["authorization"] = f"Bearer {view['key']}"
ends_at = time.monotonic() + 60
while (frame := http.get(view["frameUrl"])).status_code != 200 and time.monotonic() < ends_at:
    time.sleep(1)
session = f"{sys.argv[1]}/api/v1/sessions/{view['viewId']}"
if http.post(f"{session}/end").status_code == 409:  # it still waits for an operator
    sys.exit(f"No operator has started to film, so nothing is paid: {http.delete(session).json()['data']['state']}")
print("View", view["viewId"], "costs at most", view["capMicroUsdc"], "micro-USDC. Check it:", file=sys.stderr)
print(f"SIGHTLINE_API_KEY={view['key']} sightline receipt {view['viewId']}", file=sys.stderr)
if frame.status_code != 200:
    sys.exit(f"{frame.status_code} {frame.text}")
sys.stdout.buffer.write(frame.content)
