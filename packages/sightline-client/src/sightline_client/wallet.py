"""A wallet whose private key is in this process. Needs the extra `wallet`."""

import re
from typing import Any, Final, Self, final

from sightline_client.errors import InvalidArgumentError, MissingExtraError

try:
    from eth_account import Account
    from eth_account.messages import encode_defunct, encode_typed_data
    from eth_account.signers.local import LocalAccount
except ImportError:
    raise MissingExtraError("wallet") from None

KEY: Final = re.compile(r"(0x)?[0-9a-fA-F]{64}")


@final
class LocalWallet:
    """One key pair. Signs texts for sign-in and transactions; repr() shows the address only."""

    def __init__(self, account: LocalAccount) -> None:
        if not isinstance(account, LocalAccount):
            raise InvalidArgumentError(
                f"LocalWallet takes an account of eth_account, and not {type(account).__name__}. Pass a private key as "
                "LocalWallet.from_key(...), or make a new wallet with LocalWallet.create()."
            )
        self._account = account

    @classmethod
    def create(cls) -> Self:
        """Create a new key pair."""
        return cls(Account.create())

    @classmethod
    def from_key(cls, private_key: str) -> Self:
        """Load a private key, as hex with or without the prefix 0x. Whitespace around it, as of a file, is left out.

        Raises:
            InvalidArgumentError: The text is not 64 hex digits. The message does not show it.
        """
        key = private_key.strip()
        if not KEY.fullmatch(key):
            raise InvalidArgumentError(
                f"The private key of the wallet is not one: it has {len(key)} characters, and a key is 64 hex digits, "
                "with or without 0x. Check SIGHTLINE_WALLET_KEY, or what is passed."
            )
        return cls(Account.from_key(key))

    def __repr__(self) -> str:
        return f"LocalWallet({self.address})"

    @property
    def address(self) -> str:
        """The address in EIP-55 form."""
        return str(self._account.address)

    @property
    def private_key(self) -> str:
        """The private key as hex with the prefix 0x. Whoever has it owns the wallet."""
        return "0x" + bytes(self._account.key).hex()

    def sign(self, message: str) -> str:
        """Sign a text (EIP-191 personal_sign). Returns hex with the prefix 0x."""
        signed = self._account.sign_message(encode_defunct(text=message))
        return "0x" + bytes(signed.signature).hex()

    def sign_typed_data(self, typed_data: dict[str, Any]) -> str:
        """Sign typed data (EIP-712, eth_signTypedData_v4). Returns hex with the prefix 0x."""
        signed = self._account.sign_message(encode_typed_data(full_message=typed_data))
        return "0x" + bytes(signed.signature).hex()

    def sign_transaction(self, transaction: dict[str, Any]) -> str:
        """Sign a transaction. Returns the raw transaction as hex with the prefix 0x."""
        return "0x" + bytes(self._account.sign_transaction(transaction).raw_transaction).hex()
