"""The test USDC behaves like USDC in every way that settlements and wallets use."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from eth_abi.abi import encode
from eth_account import Account
from eth_account.messages import encode_typed_data

from sightline.chain.contracts.abi import call_data
from sightline.system.ids import SystemIds
from tests.chain.contracts.escrow_world import escrow_world, funded, sign
from tests.chain.contracts.ground import DirectGround, test_source
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


VRS, BYTES = "v, r, s", "bytes"
forms = pytest.mark.parametrize("form", [VRS, BYTES])


def signed_call(name: str, types: str, values: list[Any], form: str, signature: tuple[int, bytes, bytes]) -> bytes:
    """Encode a call in one of the two forms of USDC 2.2: with v, r, s, or with the signature in bytes."""
    v, r, s = signature
    if form == VRS:
        return call_data(f"{name}({types},uint8,bytes32,bytes32)", [*values, v, r, s])
    return call_data(f"{name}({types},bytes)", [*values, r + s + bytes([v])])


@forms
def test_permit_sets_the_allowance_once_for_one_signature(evm: Evm, form: str) -> None:
    payer, spender = evm.address("payer"), evm.settlement
    fields = [
        {"name": "owner", "type": "address"}, {"name": "spender", "type": "address"},
        {"name": "value", "type": "uint256"}, {"name": "nonce", "type": "uint256"},
        {"name": "deadline", "type": "uint256"},
    ]  # fmt: skip
    nonce = evm.ask(evm.token, "nonces(address)", payer)
    message = {"owner": payer, "spender": spender, "value": 77 + nonce, "nonce": nonce, "deadline": FAR}
    signature = signed(evm, "payer", "Permit", fields, message)
    permit = signed_call(
        "permit", "address,address,uint256,uint256", [payer, spender, 77 + nonce, FAR], form, signature
    )
    evm.send("stranger", evm.token, permit)
    assert evm.ask(evm.token, "allowance(address,address)", payer, spender) == 77 + nonce
    with pytest.raises(RevertedError, match="invalid signature"):
        evm.send("stranger", evm.token, permit)


def authorized(evm: Evm, name: str, form: str, signer: str = "payer", **changed: Any) -> bytes:
    message = {
        "from": evm.address("payer"), "to": evm.address("payee"), "value": 5, "validAfter": 0, "validBefore": FAR,
        "nonce": ids.token_bytes(32),
    } | changed  # fmt: skip
    signature = signed(evm, signer, name[0].upper() + name[1:], AUTHORIZATION, message)
    types = "address,address,uint256,uint256,uint256,bytes32"
    return signed_call(name, types, list(message.values()), form, signature)


@forms
def test_an_authorization_moves_money_once(evm: Evm, form: str) -> None:
    before = evm.balance(evm.address("payee"))
    transfer = authorized(evm, "transferWithAuthorization", form)
    evm.send("stranger", evm.token, transfer)
    assert evm.balance(evm.address("payee")) == before + 5
    with pytest.raises(RevertedError, match="used or canceled"):
        evm.send("stranger", evm.token, transfer)


@forms
def test_an_authorization_to_receive_serves_its_payee_alone(evm: Evm, form: str) -> None:
    receive = authorized(evm, "receiveWithAuthorization", form)
    with pytest.raises(RevertedError, match="must be the payee"):
        evm.send("stranger", evm.token, receive)
    evm.send("payee", evm.token, receive)


@forms
def test_an_authorization_has_its_time(evm: Evm, form: str) -> None:
    for changed, reason in (({"validAfter": FAR}, "not yet valid"), ({"validBefore": 1}, "expired")):
        transfer = authorized(evm, "transferWithAuthorization", form, **changed)
        with pytest.raises(RevertedError, match=reason):
            evm.send("stranger", evm.token, transfer)


@forms
def test_an_authorization_of_somebody_else_is_none(evm: Evm, form: str) -> None:
    transfer = authorized(evm, "transferWithAuthorization", form, signer="stranger")
    with pytest.raises(RevertedError, match="invalid signature"):
        evm.send("stranger", evm.token, transfer)


@forms
def test_a_canceled_authorization_moves_nothing(evm: Evm, form: str) -> None:
    payer, nonce = evm.address("payer"), ids.token_bytes(32)
    fields = [{"name": "authorizer", "type": "address"}, {"name": "nonce", "type": "bytes32"}]
    signature = signed(evm, "payer", "CancelAuthorization", fields, {"authorizer": payer, "nonce": nonce})
    cancel = signed_call("cancelAuthorization", "address,bytes32", [payer, nonce], form, signature)
    assert evm.ask(evm.token, "authorizationState(address,bytes32)", payer, nonce) == 0
    evm.send("stranger", evm.token, cancel)
    assert evm.ask(evm.token, "authorizationState(address,bytes32)", payer, nonce) == 1
    for again in (cancel, authorized(evm, "transferWithAuthorization", form, nonce=nonce)):
        with pytest.raises(RevertedError, match="used or canceled"):
            evm.send("stranger", evm.token, again)


@forms
def test_a_mirrored_signature_of_an_authorization_is_refused(evm: Evm, form: str) -> None:
    message = {
        "from": evm.address("payer"), "to": evm.address("payee"), "value": 5, "validAfter": 0, "validBefore": FAR,
        "nonce": ids.token_bytes(32),
    }  # fmt: skip
    v, r, s = signed(evm, "payer", "TransferWithAuthorization", AUTHORIZATION, message)
    order = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
    mirrored = (order - int.from_bytes(s, "big")).to_bytes(32, "big")
    types = "address,address,uint256,uint256,uint256,bytes32"
    values = list(message.values())
    with pytest.raises(RevertedError, match="not canonical"):
        evm.send(
            "stranger", evm.token,
            signed_call("transferWithAuthorization", types, values, form, (55 - v, r, mirrored)),
        )  # fmt: skip
    evm.send("stranger", evm.token, signed_call("transferWithAuthorization", types, values, form, (v, r, s)))


def test_bytes_that_are_no_signature_move_nothing(evm: Evm) -> None:
    types = "address,address,uint256,uint256,uint256,bytes32,bytes"
    values = [evm.address("payer"), evm.address("payee"), 5, 0, FAR, ids.token_bytes(32)]
    for signature, reason in (
        (b"", "invalid signature length"), (b"\x01" * 64, "invalid signature length"),
        (b"\x01" * 66, "invalid signature length"), (bytes(65), "invalid signature"),
        (b"\x01" * 1_025, "too long"),
    ):  # fmt: skip
        transfer = call_data(f"transferWithAuthorization({types})", [*values, signature])
        with pytest.raises(RevertedError, match=reason):
            evm.send("stranger", evm.token, transfer)


def test_a_call_that_the_token_does_not_know_reverts(evm: Evm) -> None:
    for data in (b"", b"\x01", call_data("rescue(address)", [evm.address("payer")])):
        with pytest.raises(RevertedError, match="no such function"):
            evm.send("stranger", evm.token, data)


def test_a_call_whose_signature_is_elsewhere_reverts(evm: Evm) -> None:
    data = authorized(evm, "transferWithAuthorization", BYTES)
    offset = 4 + 6 * 32
    moved = data[:offset] + (32 * 8).to_bytes(32, "big") + data[offset + 32 :]
    with pytest.raises(RevertedError, match="malformed call"):
        evm.send("stranger", evm.token, moved)


def test_an_account_with_code_is_asked_and_its_key_is_not(tmp_path: Path) -> None:
    """As in USDC 2.2: a contract wallet signs by ERC-1271; an account with delegated code (EIP-7702) by that code."""
    ground = DirectGround(tmp_path)
    try:
        world = funded(escrow_world(ground))
        wallet = ground.create(test_source("Wallet") + encode(["address"], [world.address("payer")]))
        world.fund(wallet, 100)
        for sender, account, signer, is_valid in (
            (wallet, "contract wallet", "payer", True), (wallet, "contract wallet", "stranger", False),
            (world.address("payer"), "key", "payer", True), (world.address("payer"), "delegated", "payer", False),
        ):  # fmt: skip
            if account == "delegated":
                ground.delegate(world.key("payer"), world.token)
            for form in (VRS, BYTES):
                message = world.transfer("payer", 7, sender=sender, receiver=world.address("payee"))
                signature = sign(world.key(signer), world.token_domain, message)
                parts = (signature[64], signature[:32], signature[32:64])
                types = "address,address,uint256,uint256,uint256,bytes32"
                values = list(message.values())
                call = signed_call("transferWithAuthorization", types, values, form, parts)
                before = world.balance("payee")
                if is_valid:
                    ground.call(world.key("stranger"), world.token, call)
                    assert world.balance("payee") == before + 7, (account, form)
                else:
                    with pytest.raises(RevertedError, match="invalid signature"):
                        ground.call(world.key("stranger"), world.token, call)
    finally:
        ground.close()


def test_the_longest_signature_of_a_wallet_reaches_it(tmp_path: Path) -> None:
    ground = DirectGround(tmp_path)
    try:
        world = escrow_world(ground)
        wallet = ground.create(test_source("Wallet") + encode(["address"], [world.address("payer")]))
        world.fund(wallet, 100)
        types = "address,address,uint256,uint256,uint256,bytes32,bytes"
        for more in (0, 1, 31, 32, 1_024 - 65):
            message = world.transfer("payer", 7, sender=wallet, receiver=world.address("payee"))
            signature = sign(world.key("payer"), world.token_domain, message) + b"\x07" * more
            call = call_data(f"transferWithAuthorization({types})", [*message.values(), signature])
            ground.call(world.key("stranger"), world.token, call)
        assert world.balance("payee") == 35
    finally:
        ground.close()


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


def test_a_blacklisted_account_keeps_its_balance_and_moves_nothing(evm: Evm) -> None:
    payer, payee = evm.address("payer"), evm.address("payee")
    before = evm.balance(payer)
    block = "setBlacklisted(address,bool)"
    for _ in range(2):  # a repeated call changes nothing more
        evm.send("deployer", evm.token, call_data(block, [payer, True]))
    assert (evm.ask(evm.token, "isBlacklisted(address)", payer), evm.balance(payer)) == (1, before)
    with pytest.raises(RevertedError, match="sender is blacklisted"):
        evm.send("payer", evm.token, call_data("transfer(address,uint256)", [payee, 1]))
    with pytest.raises(RevertedError, match="receiver is blacklisted"):
        evm.send("deployer", evm.token, call_data("mint(address,uint256)", [payer, 1]))
    for _ in range(2):
        evm.send("deployer", evm.token, call_data(block, [payer, False]))
    assert (evm.ask(evm.token, "isBlacklisted(address)", payer), evm.balance(payer)) == (0, before)
    evm.send("payer", evm.token, call_data("transfer(address,uint256)", [payer, before]))
    assert evm.balance(payer) == before


def test_only_the_owner_mints(evm: Evm) -> None:
    with pytest.raises(RevertedError, match="not the owner"):
        evm.send("stranger", evm.token, call_data("mint(address,uint256)", [evm.address("stranger"), 1]))
