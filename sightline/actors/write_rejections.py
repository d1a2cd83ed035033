"""Rejected writes: what the store's decision means for the turn that wanted to write."""

from typing import Final

from sightline.actors.kernel.errors import ReloadRequestedError
from sightline.actors.refusals import QUOTE_CONSUMED
from sightline.domain.errors import InvariantError, RefusedError, StoreUnavailableError
from sightline.domain.refusal import Code, Refusal
from sightline.domain.units import MicroUsdc, usdc_text
from sightline.ports.store import IN_PROGRESS, Rejected, RejectedWhy

SLUG_TAKEN: Final = Refusal(Code.CONFLICT, "workspace:slug", "The slug is taken")


def session_rejected(rejected: Rejected) -> Exception:
    """What to raise when a session was not written."""
    match rejected.why:
        case RejectedWhy.QUOTE_CONSUMED:
            return RefusedError(QUOTE_CONSUMED)
        case RejectedWhy.FUNDS:
            message = "The wallet's balance and allowance do not cover the hold"
            return RefusedError(Refusal(Code.INSUFFICIENT_CREDIT, "session:funds", message))
        case RejectedWhy.UNFUNDED:
            message = (
                "The wallet's balance and allowance do not cover the hold, and it has an open session already. "
                "End that session, or fund the wallet"
            )
            return RefusedError(Refusal(Code.INSUFFICIENT_CREDIT, "wallet:unfunded", message))
        case RejectedWhy.UNPAID:
            message = (
                "The charge of an earlier session of the wallet is not paid. Restore its balance, allowance and limits"
            )
            return RefusedError(Refusal(Code.NOT_AUTHORIZED, "wallet:unpaid", message))
        case RejectedWhy.KEY_LIMIT:
            left = rejected.left or MicroUsdc(0)
            message = f"The session may cost more than what is left of the API key's limits: {usdc_text(left)} USDC"
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
