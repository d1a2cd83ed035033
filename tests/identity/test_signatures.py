"""Addresses are recovered from signatures as eth_account recovers them, and invalid signatures give no address."""

from eth_account import Account
from eth_account.messages import encode_defunct
from eth_keys.exceptions import BadSignature
from eth_utils.exceptions import ValidationError
from hypothesis import given, settings
from hypothesis import strategies as st

from sightline.domain.addresses import recovered_address
from sightline.identity.signatures import text_hash

KEYS = st.integers(min_value=1, max_value=2**250).map(lambda number: number.to_bytes(32, "big"))


@settings(deadline=None)
@given(key=KEYS, text=st.text(max_size=200), is_low_form=st.booleans())
def test_the_signer_of_a_text_is_recovered_with_either_form_of_the_last_byte(key, text, is_low_form):
    account = Account.from_key(key)
    signature = bytes(account.sign_message(encode_defunct(text=text)).signature)
    if is_low_form:
        signature = signature[:-1] + bytes([signature[-1] - 27])
    assert recovered_address(text_hash(text), signature) == account.address.lower()


@settings(deadline=None)
@given(text=st.text(max_size=50), body=st.binary(min_size=64, max_size=64), last=st.sampled_from([0, 1, 27, 28]))
def test_any_65_bytes_recover_as_eth_account_says_or_not_at_all(text, body, last):
    signature = body + bytes([last])
    try:
        expected = str(Account.recover_message(encode_defunct(text=text), signature=signature)).lower()
    except (BadSignature, ValidationError, ValueError):
        expected = None
    assert recovered_address(text_hash(text), signature) == expected


def test_a_last_byte_that_says_no_parity_is_nobodys_signature():
    signature = bytes(Account.create().sign_message(encode_defunct(text="x")).signature)
    for last in (2, 26, 29, 255):
        assert recovered_address(text_hash("x"), signature[:-1] + bytes([last])) is None
