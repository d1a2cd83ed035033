"""Check of the wallet that a caller passes to sign with."""

from sightline_client.errors import InvalidArgumentError


def require_wallet(signer: object) -> None:
    """Refuse an account of eth_account itself: its methods have the names of ours and other arguments and results.

    Raises:
        InvalidArgumentError: It is one. `LocalWallet` makes a wallet of it.
    """
    if type(signer).__module__.partition(".")[0] == "eth_account":
        raise InvalidArgumentError(
            f"A {type(signer).__name__} of eth_account is no wallet. Pass sightline_client.wallet.LocalWallet(account)."
        )
