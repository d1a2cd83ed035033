"""The test USDC behaves like USDC in every way that settlements and wallets use."""

from collections.abc import Iterator
from typing import Any

import pytest
from eth_account import Account
from eth_account.messages import encode_typed_data

from sightline.chain.contracts.abi import call_data
from sightline.system.ids import SystemIds
from tests.chain.evm import CHAIN_ID, Evm, RevertedError, an_evm

ids = SystemIds()
FAR = 2**40
AUTHORIZATION = [
    {"name": "from", "type": "address"},
    {"name": "to", "type": "address"},
    {"name": "value", "type": "uint256"},
    {"name": "validAfter", "type": "uint256"},
    {"name": "validBefore", "type": "uint256"},
    {"name": "nonce", "type": "bytes32"},
]


@pytest.fixture(scope="module")
def evm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Evm]:
    evm = an_evm(tmp_path_factory.mktemp("evm"))
    evm.treasury.fund(evm.address("payer"), 10**9)
    yield evm
    evm.machine.store.close()


def signed(
    evm: Evm, role: str, kind: str, fields: list[dict[str, str]], message: dict[str, Any]
) -> tuple[int, bytes, bytes]:
    domain = {"name": "Sightline Test USD Coin", "version": "1", "chainId": CHAIN_ID, "verifyingContract": evm.token}
    signable = encode_typed_data(domain_data=domain, message_types={kind: fields}, message_data=message)
    signature = bytes(Account.sign_message(signable, evm.keys[role]).signature)
    return signature[64], signature[:32], signature[32:64]


def test_permit_sets_the_allowance_once_for_one_signature(evm: Evm) -> None:
    payer, spender = evm.address("payer"), evm.settlement
    fields = [
        {"name": "owner", "type": "address"}, {"name": "spender", "type": "address"},
        {"name": "value", "type": "uint256"}, {"name": "nonce", "type": "uint256"},
        {"name": "deadline", "type": "uint256"},
    ]  # fmt: skip
    message = {"owner": payer, "spender": spender, "value": 77, "nonce": 0, "deadline": FAR}
    v, r, s = signed(evm, "payer", "Permit", fields, message)
    permit = call_data(
        "permit(address,address,uint256,uint256,uint8,bytes32,bytes32)", [payer, spender, 77, FAR, v, r, s]
    )
    evm.send("stranger", evm.token, permit)
    assert evm.ask(evm.token, "allowance(address,address)", payer, spender) == 77
    with pytest.raises(RevertedError, match="invalid signature"):
        evm.send("stranger", evm.token, permit)


def authorized(evm: Evm, name: str, kind: str, signer: str = "payer", **changed: Any) -> bytes:
    message = {
        "from": evm.address("payer"), "to": evm.address("payee"), "value": 5, "validAfter": 0, "validBefore": FAR,
        "nonce": ids.token_bytes(32),
    } | changed  # fmt: skip
    signature = signed(evm, signer, kind, AUTHORIZATION, message)
    signature_types = "address,address,uint256,uint256,uint256,bytes32,uint8,bytes32,bytes32"
    return call_data(f"{name}({signature_types})", [*message.values(), *signature])


def test_an_authorization_moves_money_once(evm: Evm) -> None:
    before = evm.balance(evm.address("payee"))
    transfer = authorized(evm, "transferWithAuthorization", "TransferWithAuthorization")
    evm.send("stranger", evm.token, transfer)
    assert evm.balance(evm.address("payee")) == before + 5
    with pytest.raises(RevertedError, match="used or canceled"):
        evm.send("stranger", evm.token, transfer)


def test_an_authorization_to_receive_serves_its_payee_alone(evm: Evm) -> None:
    receive = authorized(evm, "receiveWithAuthorization", "ReceiveWithAuthorization")
    with pytest.raises(RevertedError, match="must be the payee"):
        evm.send("stranger", evm.token, receive)
    evm.send("payee", evm.token, receive)


def test_an_authorization_has_its_time(evm: Evm) -> None:
    for changed, reason in (({"validAfter": FAR}, "not yet valid"), ({"validBefore": 1}, "expired")):
        transfer = authorized(evm, "transferWithAuthorization", "TransferWithAuthorization", **changed)
        with pytest.raises(RevertedError, match=reason):
            evm.send("stranger", evm.token, transfer)


def test_an_authorization_of_somebody_else_is_none(evm: Evm) -> None:
    transfer = authorized(evm, "transferWithAuthorization", "TransferWithAuthorization", signer="stranger")
    with pytest.raises(RevertedError, match="invalid signature"):
        evm.send("stranger", evm.token, transfer)


def test_an_endless_allowance_is_used_up_too(evm: Evm) -> None:
    payer, stranger = evm.address("payer"), evm.address("stranger")
    evm.send("payer", evm.token, call_data("approve(address,uint256)", [stranger, 2**256 - 1]))
    evm.send("stranger", evm.token, call_data("transferFrom(address,address,uint256)", [payer, stranger, 3]))
    assert evm.ask(evm.token, "allowance(address,address)", payer, stranger) == 2**256 - 4


def test_a_paused_token_moves_nothing(evm: Evm) -> None:
    evm.send("deployer", evm.token, call_data("setPaused(bool)", [True]))
    with pytest.raises(RevertedError, match="paused"):
        evm.send("payer", evm.token, call_data("transfer(address,uint256)", [evm.address("payee"), 1]))
    evm.send("deployer", evm.token, call_data("setPaused(bool)", [False]))


def test_only_the_owner_mints(evm: Evm) -> None:
    with pytest.raises(RevertedError, match="not the owner"):
        evm.send("stranger", evm.token, call_data("mint(address,uint256)", [evm.address("stranger"), 1]))
