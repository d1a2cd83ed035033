"""Refusals that several of the actors' modules give. One that only one module gives is written there."""

from typing import Final

from sightline.domain.refusal import Code, Refusal

SESSION_NOT_FOUND: Final = Refusal(Code.SESSION_NOT_FOUND)
WORKSPACE_NOT_FOUND: Final = Refusal(Code.NOT_FOUND)
NOT_OPERATOR: Final = Refusal(Code.NOT_OPERATOR)
NOT_PARTY: Final = Refusal(
    Code.NOT_AUTHORIZED,
    "session:workspaceMismatch",
    "Your workspace is not a party to the session, or not the side that makes this call",
)
QUOTE_CONSUMED: Final = Refusal(
    Code.INVALID_STATE, "pricing:quoteConsumed", "The quote has been used", state="CONSUMED"
)
