"""Checks of the wallet that a caller passes to sign with."""

from typing import Protocol

from sightline_client.errors import InvalidArgumentError


class _Addressed(Protocol):
    @property
    def address(self) -> str: ...


def require_wallet(signer: object) -> None:
    """Refuse what is no wallet, such as a private key as text.

    An account of eth_account itself is refused too: its methods have the names of ours and other arguments and results.

    Raises:
        InvalidArgumentError: It is none. `LocalWallet` makes a wallet of an account or a key.
    """
    if type(signer).__module__.partition(".")[0] == "eth_account":
        raise InvalidArgumentError(
            f"A {type(signer).__name__} of eth_account is no wallet. Pass sightline_client.wallet.LocalWallet(account)."
        )
    if not isinstance(getattr(signer, "address", None), str):
        raise InvalidArgumentError(
            f"A {type(signer).__name__} is no wallet. Pass sightline_client.wallet.LocalWallet.from_key(...) with the "
            "private key."
        )


def require_wallet_of(signer: _Addressed, owner: str) -> None:
    """Refuse a wallet other than that of the workspace which the API key belongs to.

    Raises:
        InvalidArgumentError: It is another one, or none; see `require_wallet`.
    """
    require_wallet(signer)
    if signer.address.lower() != owner.lower():
        raise InvalidArgumentError(
            f"The wallet {signer.address} is not that of the API key's workspace, {owner}. Pass the wallet and the key "
            "of one workspace; for a command these are SIGHTLINE_WALLET_KEY and SIGHTLINE_API_KEY."
        )
