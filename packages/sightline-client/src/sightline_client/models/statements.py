"""The statement of a workspace for one month."""

from sightline_client.models.base import Model, Money, Time


class ConsumerSession(Model):
    """A session that the workspace paid; the charge has the platform's fee in it."""

    session_id: str
    settled_at: Time
    tx_hash: str
    charged_micro_usdc: Money
    platform_fee_micro_usdc: Money
    returned_micro_usdc: Money
    """What of an amount in escrow went back to the payer."""
    refunded_micro_usdc: Money


class OperatorSession(Model):
    """A session that the workspace filmed."""

    session_id: str
    settled_at: Time
    tx_hash: str
    earned_micro_usdc: Money
    platform_fee_micro_usdc: Money
    credited_micro_usdc: Money
    """What of it the wallet refused, and the contract keeps for it."""


class ConsumerTotal(Model):
    """The sum of the sessions that the workspace paid."""

    sessions: int
    charged_micro_usdc: Money
    platform_fee_micro_usdc: Money
    returned_micro_usdc: Money
    refunded_micro_usdc: Money


class OperatorTotal(Model):
    """The sum of the sessions that the workspace filmed. `waiting` ended in time and is settled later."""

    sessions: int
    earned_micro_usdc: Money
    platform_fee_micro_usdc: Money
    credited_micro_usdc: Money
    paid_micro_usdc: Money
    waiting_micro_usdc: Money


class StatementInvoice(Model):
    """The invoice of a closed month. It never changes."""

    number: str
    issued_at: Time
    sessions: int
    charged_micro_usdc: Money
    refunded_micro_usdc: Money


class ConsumerPart(Model):
    """The consumer's side."""

    items: list[ConsumerSession]
    total: ConsumerTotal
    invoice: StatementInvoice | None = None
    """None while the month is open, and without charges."""


class OperatorPart(Model):
    """The operator's side."""

    items: list[OperatorSession]
    total: OperatorTotal


class MonthStatement(Model):
    """What the books have of a workspace's sessions in a month, by the time of the block that settled them."""

    workspace_id: str
    month: str
    environment: str
    is_closed: bool
    """Whether nothing can be added any more."""
    consumer: ConsumerPart
    operator: OperatorPart
