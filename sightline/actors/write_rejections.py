"""Rejected writes: what the store's decision means for the turn that wanted to write."""

from typing import Final

from sightline.actors.kernel.errors import ReloadRequestedError
from sightline.actors.refusals import QUOTE_CONSUMED
from sightline.domain.errors import InvariantError, RefusedError, StoreUnavailableError
from sightline.domain.refusal import Code, Refusal
from sightline.domain.session.model import Terms
from sightline.domain.units import MicroUsdc, usdc_text
from sightline.ports.store import IN_PROGRESS, Rejected, RejectedWhy

SLUG_TAKEN: Final = Refusal(Code.CONFLICT, "workspace:slug", "The slug is taken: choose another slug")

_RAISE_LIMITS: Final = "raise them in the console under Wallet, or with setLimits of the contract"


def session_rejected(rejected: Rejected, terms: Terms | None = None, extension: MicroUsdc | None = None) -> Exception:
    """What to raise when a session was not written.

    Args:
        terms: Those of a session that is asked for, or that is to be extended: as they were before.
        extension: What the extension may cost.
    """
    match rejected.why:
        case RejectedWhy.QUOTE_CONSUMED:
            return RefusedError(QUOTE_CONSUMED)
        case RejectedWhy.FUNDS if rejected.left is not None:
            message = (
                "The session may cost more than the limits that the wallet set on the settlement contract leave: "
                f"{usdc_text(rejected.left)} USDC. Ask for a shorter time, or {_RAISE_LIMITS}"
            )
            return RefusedError(Refusal(Code.INSUFFICIENT_CREDIT, "wallet:limit", message, left_micro=rejected.left))
        case RejectedWhy.FUNDS if rejected.free is not None:
            message = f"{_lacking(terms, extension, rejected.free)}. Ask for a shorter time, or fund the wallet"
            return RefusedError(Refusal(Code.INSUFFICIENT_CREDIT, "session:funds", message, left_micro=rejected.free))
        case RejectedWhy.FUNDS:
            message = "The service has not read the wallet from the chain lately, and reserves nothing. Try again"
            return RefusedError(Refusal(Code.INSUFFICIENT_CREDIT, "session:funds", message))
        case RejectedWhy.UNFUNDED:
            message = _unfunded(rejected.left)
            refusal = Refusal(Code.INSUFFICIENT_CREDIT, "wallet:unfunded", message, left_micro=rejected.left)
            return RefusedError(refusal)
        case RejectedWhy.UNPAID:
            message = (
                "The charge of an earlier session of the wallet is not paid: its balance, allowance or limits do not "
                "cover it. The page Wallet of the console shows what is missing"
            )
            return RefusedError(Refusal(Code.NOT_AUTHORIZED, "wallet:unpaid", message))
        case RejectedWhy.KEY_LIMIT:
            left = rejected.left or MicroUsdc(0)
            enough = "" if terms is None or not left >= terms.rate > 0 else f", enough for {left // terms.rate} s"
            amount = 0 if terms is None else terms.hold + (extension or 0)
            cost = f"may cost {usdc_text(amount)} USDC, more" if amount else "may cost more"
            whole = "" if extension is None else " in all"
            message = (
                f"The session {cost}{whole} than what is left of the API key's limits: {usdc_text(left)} USDC"
                f"{enough}{whole if enough else ''}"
            )
            return RefusedError(Refusal(Code.INSUFFICIENT_CREDIT, "apiKey:spendLimit", message, left_micro=left))
        case RejectedWhy.VERSION:
            return ReloadRequestedError("the session's row has moved on", retry=True)
        case RejectedWhy.FENCED:
            return StoreUnavailableError("this server no longer owns the session")
        case RejectedWhy.IDEMPOTENT:
            return RefusedError(IN_PROGRESS)
        case RejectedWhy.SLUG_TAKEN:
            return InvariantError("a session has no slug")


def workspace_rejected(rejected: Rejected) -> Exception:
    """What to raise when a workspace was not written."""
    match rejected.why:
        case RejectedWhy.SLUG_TAKEN:
            return RefusedError(SLUG_TAKEN)
        case RejectedWhy.VERSION:
            return ReloadRequestedError("the workspace's row has moved on", retry=True)
        case RejectedWhy.FENCED:
            return StoreUnavailableError("this server no longer owns the workspace")
        case RejectedWhy.IDEMPOTENT:
            return RefusedError(IN_PROGRESS)
        case (
            RejectedWhy.QUOTE_CONSUMED
            | RejectedWhy.FUNDS
            | RejectedWhy.KEY_LIMIT
            | RejectedWhy.UNFUNDED
            | RejectedWhy.UNPAID
        ):
            return InvariantError(f"a workspace write was rejected for {rejected.why}")


def _lacking(terms: Terms | None, extension: MicroUsdc | None, free: MicroUsdc) -> str:
    """Return what a session or an extension may cost, and for how many seconds the wallet has enough.

    Args:
        free: What balance and allowance leave for the whole session. Of it, an extended one has reserved its hold.
    """
    what, needed, enough = "session", "", ""
    if terms is not None:
        if extension is not None:
            what, free = "extension", MicroUsdc(max(0, free - terms.hold))
        needed = f"{usdc_text(terms.hold if extension is None else extension)} USDC, "
        enough = f", enough for {free // terms.rate} s" if free >= terms.rate > 0 else ""
    return (
        f"The {what} may cost {needed}more than the wallet has for it: of its balance and allowance, "
        f"{usdc_text(free)} USDC are not reserved{enough}"
    )


def _unfunded(left: MicroUsdc | None) -> str:
    """Return why a wallet opens no second session.

    Args:
        left: What its limits on the settlement contract leave, if they are what is too low.
    """
    if left is None:
        return (
            "The wallet's balance and allowance do not cover the hold, and it has an open session already. "
            "End that session, or fund the wallet"
        )
    return (
        f"The limits that the wallet set on the settlement contract leave {usdc_text(left)} USDC, which does not cover "
        f"the hold, and it has an open session already. End that session, or {_RAISE_LIMITS}"
    )
