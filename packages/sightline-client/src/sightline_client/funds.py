"""Says what a wallet lacks for the price of a session or for a payment that was refused, and what to do."""

from collections.abc import Iterator
from typing import Final

from sightline_client.models import Wallet
from sightline_client.money import MicroUsdc

RAISE_LIMITS: Final = "Raise the limits that it set on the settlement contract, in the console under Wallet."
GENERAL_STEPS: Final = {
    "ALLOWANCE": "`sightline approve` gives the allowance; `sightline wallet` shows what is missing.",
    "BALANCE": "Send USDC to the payer's wallet; `sightline wallet` shows what is missing.",
    "SESSION_LIMIT": RAISE_LIMITS,
    "DAY_LIMIT": RAISE_LIMITS,
}
"""What to do for a refused payment if the wallet cannot be read, by what it is refused for."""


def shortage(found: Wallet, price: int) -> str | None:
    """Say that a wallet does not cover the price of a new session without escrow, and what it needs; None if it does.

    A service may sell it nevertheless. The charge stays unpaid then, and the wallet gets no further session.
    """
    covered, most = found.covered_micro_usdc, MicroUsdc(price)
    if covered >= price:
        return None
    of_most = f"only {covered.usdc} USDC of the {most.usdc} USDC" if covered else f"nothing of the {most.usdc} USDC"
    steps = [*_funding_steps(found, MicroUsdc(found.held_micro_usdc + price))]
    if found.available_micro_usdc >= price:
        steps.append(RAISE_LIMITS)
    return (
        f"The wallet covers {of_most} that the session may cost. While a charge is not paid, the wallet gets no "
        f"further session. {' '.join(steps)}"
    )


def payment_steps(found: Wallet | None, refused_for: str) -> str:
    """Say what a wallet needs for what is held, which includes a charge that is not paid. None: it is not known."""
    if found is None or refused_for.endswith("_LIMIT"):
        return GENERAL_STEPS[refused_for]
    return " ".join(_funding_steps(found, found.held_micro_usdc)) or GENERAL_STEPS[refused_for]


def _funding_steps(found: Wallet, needed: MicroUsdc) -> Iterator[str]:
    """Say what to deposit and to approve until balance and allowance cover an amount."""
    if found.tracked_balance < needed:
        yield f"Send USDC to {found.wallet_address}: its balance is {found.tracked_balance.usdc}."
    if found.tracked_allowance < needed:
        yield f"Run `sightline approve {needed.usdc}` or more: its allowance is {found.tracked_allowance.usdc}."
