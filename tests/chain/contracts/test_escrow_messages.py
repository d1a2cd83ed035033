"""The messages, calls and events in the code are those of the contract, of eth_account and of web3."""

from typing import Any

import pytest
from eth_account.messages import encode_typed_data
from hexbytes import HexBytes
from web3 import Web3

from contracts.build import SOURCES
from sightline.chain.contracts import escrow, messages
from sightline.chain.contracts.artefacts import artefact
from sightline.chain.contracts.messages import (
    CaptureBatch,
    EscrowHold,
    Extension,
    Mandate,
    MandateRevocation,
    MeterStatement,
    Opening,
    Permit,
    ReceiveWithAuthorization,
    SessionTerms,
    SigningDomain,
    StrayReturn,
    TransferWithAuthorization,
    TypedMessage,
    escrow_domain,
)
from sightline.system.keccak import keccak256
from tests.chain.contracts.escrow_world import EscrowWorld
from tests.chain.contracts.test_artefacts import signatures

PAYER, PAYEE = ("0x" + byte * 20 for byte in ("a1", "b2"))
HASH = keccak256(b"some hash")
LARGE = 2**255 + 7  # more than a JavaScript number holds
DOMAIN = escrow_domain(84_532, "0x" + "cc" * 20)
HOLD = EscrowHold(
    session_id_hash=HASH, payer=PAYER, payee=PAYEE, max_amount=600_000, rate=1_000, fee_bps=1_500,
    opened_at_s=1_900_000_000,
)  # fmt: skip
TERMS = SessionTerms(
    session_id_hash=HASH, payer=PAYER, payee=PAYEE, max_amount=LARGE, rate=1_000, fee_bps=1_500, open_by_s=2**40
)
MANDATE = Mandate(
    payer=PAYER, delegate=PAYEE, max_per_session=1, max_per_day=2, max_rate=3, max_fee_bps=4, valid_until_s=5, salt=HASH
)
PAYMENT: dict[str, Any] = {
    "sender": PAYER, "receiver": PAYEE, "value": LARGE, "valid_after_s": 1, "valid_before_s": 2, "nonce": HASH,
}  # fmt: skip
ALL: tuple[TypedMessage, ...] = (
    TERMS, MANDATE, Opening(terms_hash=HASH, payee=PAYEE),
    MeterStatement(hold_hash=HASH, clean_seconds=60, head_hash=HASH[::-1], is_final=True),
    MeterStatement(hold_hash=HASH, clean_seconds=60, head_hash=HASH[::-1], is_final=False),
    CaptureBatch(captures_hash=HASH), Extension(hold_hash=HASH, extra_amount=LARGE, extend_by_s=9),
    MandateRevocation(mandate_hash=HASH), StrayReturn(receiver=PAYER, amount=LARGE, reference=HASH),
    TransferWithAuthorization(**PAYMENT), ReceiveWithAuthorization(**PAYMENT),
    Permit(owner=PAYER, spender=PAYEE, value=LARGE, nonce=3, deadline_s=2**40),
)  # fmt: skip


@pytest.mark.parametrize("message", ALL, ids=lambda message: message.NAME)
def test_eth_account_signs_the_same_digest(message: TypedMessage) -> None:
    signable = encode_typed_data(full_message=DOMAIN.typed_data(message))
    assert keccak256(b"\x19" + signable.version + signable.header + signable.body) == DOMAIN.digest(message)
    assert signable.header == DOMAIN.separator()
    assert signable.body == message.struct_hash()


def test_every_message_of_the_module_is_compared() -> None:
    assert {message.NAME for message in ALL} == {each.NAME for each in TypedMessage.__subclasses__()}
    assert all(len(message.values()) == len(message.MEMBERS) for message in ALL)


def test_a_digest_depends_on_name_version_chain_and_contract() -> None:
    domains = [
        DOMAIN, escrow_domain(84_533, DOMAIN.contract), escrow_domain(84_532, PAYER),
        SigningDomain(name="SessionEscrow", version="2", chain_id=84_532, contract=DOMAIN.contract),
        SigningDomain(name="SessionSettlement", version="1", chain_id=84_532, contract=DOMAIN.contract),
    ]  # fmt: skip
    assert len({domain.digest(TERMS) for domain in domains}) == len(domains)


def test_the_contract_has_the_domain_of_the_messages(world: EscrowWorld) -> None:
    assert world.ask("DOMAIN_SEPARATOR()").to_bytes(32) == world.domain.separator()


def test_the_functions_and_topics_in_use_are_those_of_the_contract() -> None:
    functions = {f"{name}({','.join(types)})" for name, types in escrow.FUNCTIONS.items()}
    every = signatures("SessionEscrow", "function")
    assert functions <= every
    views_and_administration = {
        "DOMAIN_SEPARATOR()", "TOKEN()", "FEE_RECEIVER()", "MAX_FEE_BPS()", "SESSION_CAP()", "MAX_RATE()",
        "ADMIN_DELAY()", "owner()", "pendingOwner()", "paused()", "ownershipAcceptableFrom()", "isMeter(address)",
        "meterAllowedFrom(address)", "stateOf(bytes32)", "totalHeld()", "credit(address)", "totalCredit()",
        "isMandateRevoked(bytes32)", "openedOnDay(bytes32,uint256)", "isStrayReturned(bytes32)",
        "proposeMeter(address)", "allowMeter(address)", "removeMeter(address)", "setPaused(bool)",
        "transferOwnership(address)", "acceptOwnership()",
    }  # fmt: skip
    assert every == functions | views_and_administration
    topics = {escrow.topic(event) for event in signatures("SessionEscrow", "event")}
    assert {value for name, value in vars(escrow).items() if name.endswith("_TOPIC")} <= topics
    assert len({value for name, value in vars(escrow).items() if name.endswith("_TOPIC")}) == 8


def test_settled_is_the_event_of_session_settlement() -> None:
    """Receipts and their verifiers are valid for both contracts."""

    def settled(name: str) -> object:
        (event,) = [item for item in artefact(name).abi if item["type"] == "event" and item["name"] == "Settled"]
        return event

    assert settled("SessionEscrow") == settled("SessionSettlement")


def test_web3_encodes_and_decodes_the_same_for_the_escrow() -> None:
    contract = Web3().eth.contract(address=Web3.to_checksum_address(DOMAIN.contract), abi=artefact("SessionEscrow").abi)
    payer, payee = (Web3.to_checksum_address(each) for each in (PAYER, PAYEE))
    hold = (HASH, payer, payee, 600_000, 1_000, 1_500, 1_900_000_000)
    terms = (HASH, payer, payee, LARGE, 1_000, 1_500, 2**40)
    mandate = (payer, payee, 1, 2, 3, 4, 5, HASH)
    item = escrow.CaptureItem(hold=HOLD, clean_seconds=60, head_hash=HASH)
    sig = b"s" * 65
    calls: tuple[tuple[str, list[Any], list[Any]], ...] = (
        ("openWithAuthorization", [TERMS, PAYEE, sig, sig], [terms, payee, sig, sig]),
        ("openExact", [TERMS, PAYEE, 1, 2, HASH, sig, sig], [terms, payee, 1, 2, HASH, sig, sig]),
        ("openWithConsent", [TERMS, PAYEE, sig, sig], [terms, payee, sig, sig]),
        ("openWithMandate", [TERMS, PAYEE, MANDATE, sig, b"", sig], [terms, payee, mandate, sig, b"", sig]),
        ("extendWithAuthorization", [HOLD, 7, 8, sig, sig], [hold, 7, 8, sig, sig]),
        ("extendExact", [HOLD, 7, 8, 1, 2, HASH, sig, sig], [hold, 7, 8, 1, 2, HASH, sig, sig]),
        ("extendWithConsent", [HOLD, 7, 8, sig, sig], [hold, 7, 8, sig, sig]),
        ("extendWithMandate", [HOLD, 7, 8, MANDATE, sig, b"", sig], [hold, 7, 8, mandate, sig, b"", sig]),
        ("captureMany", [[item, item], sig], [[(hold, 60, HASH)] * 2, sig]),
        ("claim", [HOLD, 60, HASH, True, sig], [hold, 60, HASH, True, sig]),
        ("reclaim", [HOLD], [hold]),
        ("withdraw", [PAYEE], [payee]),
        ("returnStray", [PAYEE, 7, HASH, sig], [payee, 7, HASH, sig]),
        ("revokeMandate", [MANDATE], [mandate]),
        ("revokeMandateFor", [MANDATE, sig], [mandate, sig]),
    )
    assert {name for name, _, _ in calls} == set(escrow.FUNCTIONS)
    for name, ours, theirs in calls:
        assert "0x" + escrow.escrow_call(name, *ours).hex() == contract.encode_abi(name, args=theirs)


def test_a_hold_is_read_from_its_event(world: EscrowWorld) -> None:
    terms = world.terms()
    hold = world.open_consented(terms)  # decoded by `opened_hold`
    assert world.state(terms) == hold.hash()
    assert hold.latest_end_s == world.ground.now_s + 600


def test_the_constants_are_those_of_the_source() -> None:
    text = (SOURCES / "SessionEscrow.vy").read_text(encoding="ascii")
    for name, value in (
        ("SLACK", messages.SLACK_S), ("MAX_SECONDS", messages.MAX_SECONDS), ("INTERIM_DELAY", messages.INTERIM_DELAY_S),
        ("RECLAIM_DELAY", messages.RECLAIM_DELAY_S), ("NO_SUCH_HOLD", escrow.SkippedWhy.NO_SUCH_HOLD),
        ("OVER_TIME", escrow.SkippedWhy.OVER_TIME), ("OVER_AMOUNT", escrow.SkippedWhy.OVER_AMOUNT),
    ):  # fmt: skip
        assert f"{name}: constant(uint256) = {value:_}\n" in text, name


def test_web3_reads_the_event_of_a_hold() -> None:
    contract = Web3().eth.contract(address=Web3.to_checksum_address(DOMAIN.contract), abi=artefact("SessionEscrow").abi)
    topics = [escrow.EVIDENCE_TOPIC, "0x" + HASH.hex()]
    data = HASH[::-1] + (17).to_bytes(32)
    entry = {
        "address": contract.address, "topics": [HexBytes(topic) for topic in topics], "data": HexBytes(data),
        "logIndex": 0, "transactionIndex": 0, "transactionHash": HexBytes(HASH), "blockHash": HexBytes(HASH),
        "blockNumber": 1,
    }  # fmt: skip
    judged = contract.events.Evidence().process_log(entry)["args"]
    ours = escrow.EvidenceEvent.of(topics, data)
    assert (ours.session_id_hash, ours.head_hash, ours.returned) == (
        judged["sessionIdHash"], judged["headHash"], judged["returned"],
    )  # fmt: skip
