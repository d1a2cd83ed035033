"""Creates keys, funded accounts and both contracts on the first start of an embedded chain; contains the faucet."""

import json
from pathlib import Path
from typing import Final, final

from eth_utils.address import to_canonical_address, to_checksum_address

from sightline.chain.contracts.abi import call_data, settlement_constructor
from sightline.chain.contracts.artefacts import artefact
from sightline.chain.contracts.escrow import escrow_constructor
from sightline.chain.contracts.terms import MAX_RATE_MICRO
from sightline.chain.embedded import views
from sightline.chain.embedded.machine import Machine
from sightline.chain.signer import Fees, Signer
from sightline.domain.value import Value
from sightline.ports.ids import Ids
from sightline.system.files import write_durably
from sightline.system.keccak import keccak256

ETHER: Final = 10**18
RICH_WEI: Final = 1_000_000_000 * ETHER
# One faucet payment raises the wallet's native balance to this amount, which pays for many approvals.
FAUCET_WEI: Final = 10 * ETHER
MAX_FEE_WEI: Final = 100 * 10**9
TIP_WEI: Final = 10**9
KEYS_FILE: Final = "keys.json"
SECRET_FILE: Final = "faucet.secret"  # noqa: S105  # a file name
ROLES: Final = ("deployer", "relayer", "feeReceiver", "meter", "standbyMeter")


@final
class ContractTerms(Value, kw_only=True):
    """Which contract holds and settles, and its constructor terms; used on the first start only."""

    max_fee_bps: int
    session_cap_micro: int
    consent_required: bool
    admin_delay_s: int
    is_escrow: bool = False


def load_keys(directory: Path, ids: Ids) -> dict[str, str]:
    """Load the chain's private keys by role; create those that are missing."""
    path = directory / KEYS_FILE
    keys: dict[str, str] = json.loads(path.read_text(encoding="ascii")) if path.exists() else {}
    missing = [role for role in ROLES if role not in keys]
    if missing:
        keys |= {role: "0x" + ids.token_bytes(32).hex() for role in missing}
        write_durably(path, json.dumps(keys).encode())
    return keys


def load_secret(directory: Path, ids: Ids) -> str:
    """Load the secret that authorises faucet requests; create it on the first call."""
    path = directory / SECRET_FILE
    if not path.exists():
        write_durably(path, ids.token_bytes(32).hex().encode())
    return path.read_text(encoding="ascii").strip()


def address_of(key: str) -> str:
    """Return the EIP-55 address of a private key."""
    return signer_of(key).address


def signer_of(key: str) -> Signer:
    """Return a signer for a key in the form that `load_keys` returns."""
    return Signer(bytes.fromhex(key.removeprefix("0x")))


def contract_address(creator: str, nonce: int) -> str:
    """Return the address of a contract creation: the hash of RLP's [creator, nonce]. The nonce must be below 128."""
    assert 0 <= nonce < 128
    encoded = b"\xd6\x94" + to_canonical_address(creator) + (bytes([nonce]) if nonce else b"\x80")
    return to_checksum_address(keccak256(encoded)[12:])


@final
class Treasury:
    """The deployer account: owner and minter of the token, owner of the settlement contract, source of native coin."""

    def __init__(self, machine: Machine, keys: dict[str, str]) -> None:
        self._machine = machine
        self._keys = keys
        self._signer = signer_of(keys["deployer"])
        self.address = self._signer.address

    def deploy(self, terms: ContractTerms) -> None:
        """Deploy both contracts once. After an interrupted start, deploy only the one that is missing."""
        if self._machine.store.meta("settlementAddress") is not None:
            return
        token = contract_address(self.address, 0)
        creations = [
            artefact("TestUSDC").bytecode + bytes(12) + to_canonical_address(self.address),
            self._escrow(token, terms) if terms.is_escrow else self._settlement(token, terms),
        ]
        nonce = self._nonce()
        raws = [
            self._signed(nonce + position, None, creation, 0, 5_000_000)
            for position, creation in enumerate(creations[nonce:])
        ]
        self.execute(raws)
        facts = {"usdcAddress": token, "settlementAddress": contract_address(self.address, 1)}
        facts["feeReceiver"] = address_of(self._keys["feeReceiver"])
        self._machine.store.commit_facts(facts)

    def _settlement(self, token: str, terms: ContractTerms) -> bytes:
        return artefact("SessionSettlement").bytecode + settlement_constructor(
            token=token,
            owner=self.address,
            relayer=address_of(self._keys["relayer"]),
            fee_receiver=address_of(self._keys["feeReceiver"]),
            max_fee_bps=terms.max_fee_bps,
            session_cap_micro=terms.session_cap_micro,
            consent_required=terms.consent_required,
            admin_delay_s=terms.admin_delay_s,
        )

    def _escrow(self, token: str, terms: ContractTerms) -> bytes:
        return artefact("SessionEscrow").bytecode + escrow_constructor(
            token=token,
            owner=self.address,
            meter=address_of(self._keys["meter"]),
            standby_meter=address_of(self._keys["standbyMeter"]),
            fee_receiver=address_of(self._keys["feeReceiver"]),
            max_fee_bps=terms.max_fee_bps,
            session_cap_micro=terms.session_cap_micro,
            max_rate=MAX_RATE_MICRO,
            admin_delay_s=terms.admin_delay_s,
        )

    def fund(self, address: str, amount_micro: int) -> str:
        """Mint test USDC and top up native coin; return the hash of the mint transaction."""
        nonce = self._nonce()
        missing = FAUCET_WEI - self._machine.balance(to_canonical_address(address), self._machine.head)
        raws = []
        if missing > 0:
            raws.append(self._signed(nonce, address, b"", missing, 21_000))
        token = self._machine.store.meta("usdcAddress")
        assert token is not None, "the token is deployed before anybody is funded"
        mint = call_data("mint(address,uint256)", [address, amount_micro])
        raws.append(self._signed(nonce + len(raws), token, mint, 0, 150_000))
        return self.execute(raws)[-1]

    def execute(self, raws: list[bytes]) -> list[str]:
        """Mine these transactions in one block.

        Raises:
            RuntimeError: A transaction is rejected or reverts.
        """
        transactions = [self._machine.decode(raw) for raw in raws]
        rejected = self._machine.mine(transactions).rejected
        hashes = [views.data(transaction.hash) for transaction in transactions]
        for tx_hash in hashes:
            receipt = self._machine.store.receipt(tx_hash)
            if receipt is None or receipt["status"] != "0x1":
                reasons = "; ".join(str(reason) for reason in rejected.values())
                msg = f"the treasury's transaction {tx_hash} failed: {reasons or 'reverted'}"
                raise RuntimeError(msg)
        return hashes

    def _nonce(self) -> int:
        return self._machine.nonce(to_canonical_address(self.address), self._machine.head)

    def _signed(self, nonce: int, to: str | None, data: bytes, value: int, gas: int) -> bytes:
        fees = Fees(max_fee_wei=MAX_FEE_WEI, tip_wei=TIP_WEI)
        _, raw = self._signer.sign(
            chain_id=self._machine.chain_id, nonce=nonce, to=to, data=data, gas=gas, fees=fees, value=value
        )
        return raw
