"""Ask the user of an MCP client before a tool spends money. Needs the extra `mcp`.

An additional protection: the limits are kept by the server, whatever a client answers.
"""

from enum import StrEnum
from typing import Annotated, Any, Final, TypeAlias

from mcp.server.elicitation import AcceptedElicitation, ElicitationResult
from mcp.server.mcpserver import Context, Elicit
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import BaseModel, Field, Strict

from sightline_client.money import MicroUsdc, usdc

Ctx: TypeAlias = Context[Any, Any]

MaxCharge = Annotated[
    str | Annotated[float, Strict()], Field(description='Highest charge in USDC that is acceptable, such as "0.50"')
]
"""Amount in USDC. Models send text and numbers; strict, so that `true` is not 1 USDC."""


class Confirm(StrEnum):
    """When a user is asked before money is spent."""

    AUTO = "auto"
    """If the client can ask."""
    ALWAYS = "always"
    """A request of a client that cannot ask is refused."""
    NEVER = "never"


class Approval(BaseModel):
    """The form that the user sees."""

    # A host that accepts without a value has not approved.
    approve: bool = Field(default=False, title="Approve", description="Money is spent while the view is live.")


def limit_of(max_charge_usdc: MaxCharge) -> MicroUsdc:
    """Read an amount in USDC. Raises ToolError with the next step."""
    try:
        return usdc(str(max_charge_usdc))  # by the decimal text of a number: the float 0.1 is not exactly 0.1
    except (ArithmeticError, ValueError):
        raise ToolError(
            f"INVALID_ARGUMENT: max_charge_usdc {max_charge_usdc!r} is not an amount. Pass USDC such as 0.50."
        ) from None


def question(lat: float, lng: float, seconds: int, limit: MicroUsdc, price: MicroUsdc | None = None) -> str:
    """Word the question by values of fixed form only: a model cannot put text of its own into it.

    `price` is what the quote says for the seconds, if it is known.
    """
    costs = (
        f"for at most {limit.usdc} USDC"
        if price is None
        else f"for up to {price.usdc} USDC at this price; your limit is {limit.usdc} USDC"
    )
    return f"Sightline: request live video at {lat:.6f}, {lng:.6f} for up to {seconds} s, {costs}?"


def extension_question(lat: float, lng: float, more: int, seconds: int, limit: MicroUsdc, price: MicroUsdc) -> str:
    """Word the question about a running view in the same way. `price` is that of all its seconds."""
    return (
        f"Sightline: extend the running view at {lat:.6f}, {lng:.6f} by {more} s, to {seconds} s in all, for up to "
        f"{price.usdc} USDC in all; your limit is {limit.usdc} USDC?"
    )


def ask(confirm: Confirm, ctx: Ctx, text: str) -> Approval | Elicit[Approval]:
    """Return the question for the user, or an approval if none is needed.

    Raises ToolError if the user must be asked and the client cannot.
    """
    if confirm is Confirm.NEVER:
        return Approval(approve=True)
    if can_ask(ctx):
        return Elicit(text, Approval)
    if confirm is Confirm.ALWAYS:
        raise ToolError(
            "CONFIRMATION_UNAVAILABLE: the user must confirm every view (confirm=always), but this client cannot ask "
            "(it has no form elicitation). Nothing was requested. Use another client, or set confirm to auto."
        )
    return Approval(approve=True)


def wants_answer(confirm: Confirm, ctx: Ctx) -> bool:
    """Whether `ask` asks the user, or refuses because it cannot."""
    return confirm is Confirm.ALWAYS or (confirm is Confirm.AUTO and can_ask(ctx))


def can_ask(ctx: Ctx) -> bool:
    """Whether a question can reach the user over this connection."""
    capabilities = ctx.client_capabilities
    elicitation = None if capabilities is None else capabilities.elicitation
    if elicitation is None or (elicitation.form is None and elicitation.url is not None):
        return False
    # The protocol of 2026-07-28 carries questions in results; earlier ones need a channel to the client.
    version = ctx.protocol_version
    return (version is not None and version >= "2026-07-28") or ctx.session.can_send_request


NOT_REQUESTED: Final = "this view. Nothing was requested or charged"
NOT_ADDED: Final = "more time. Nothing was added, and the view goes on as before"


def require_approval(answer: ElicitationResult[Approval], declined: str = NOT_REQUESTED) -> None:
    """Raise ToolError unless the user approved. `declined` says what that means."""
    if not (isinstance(answer, AcceptedElicitation) and answer.data.approve):
        raise ToolError(
            f"DECLINED: the user did not approve {declined}. Do not request it again unless the user asks for it."
        )
