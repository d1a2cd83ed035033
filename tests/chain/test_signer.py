"""The signer's transactions equal those that eth_account makes from the same fields."""

from eth_account import Account
from hypothesis import given, settings
from hypothesis import strategies as st

from sightline.chain.signer import Fees, Signer
from sightline.system.keccak import keccak256

AMOUNTS = st.integers(min_value=0, max_value=2**64 - 1)
ADDRESSES = st.none() | st.binary(min_size=20, max_size=20).map(lambda raw: "0x" + raw.hex())


@settings(deadline=None)
@given(
    key=st.integers(min_value=1, max_value=2**250).map(lambda number: number.to_bytes(32, "big")),
    chain_id=st.integers(min_value=1, max_value=2**53),
    nonce=AMOUNTS,
    gas=AMOUNTS,
    tip=AMOUNTS,
    fee=AMOUNTS,
    to=ADDRESSES,
    value=AMOUNTS,
    data=st.binary(max_size=200),
)
def test_a_signed_transaction_is_byte_for_byte_that_of_eth_account(
    key, chain_id, nonce, gas, tip, fee, to, value, data
):
    signer = Signer(key)
    fees = Fees(max_fee_wei=fee, tip_wei=min(tip, fee))
    tx_hash, raw = signer.sign(chain_id=chain_id, nonce=nonce, to=to, data=data, gas=gas, fees=fees, value=value)
    account = Account.from_key(key)
    assert signer.address == account.address
    fields = {
        "type": 2, "chainId": chain_id, "nonce": nonce, "value": value, "data": data, "gas": gas,
        "maxFeePerGas": fee, "maxPriorityFeePerGas": min(tip, fee),
    }  # fmt: skip
    expected = account.sign_transaction(fields | ({} if to is None else {"to": bytes.fromhex(to[2:])}))
    assert raw == bytes(expected.raw_transaction)
    assert tx_hash == "0x" + keccak256(raw).hex() == "0x" + bytes(expected.hash).hex()
