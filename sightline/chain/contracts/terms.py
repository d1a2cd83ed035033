"""Default terms of a new settlement contract."""

from typing import Final

SESSION_CAP_MICRO: Final = 100_000_000
"""Maximum charge of one session: 100 USDC. Four hours at six times the default rate cost 86.4 USDC."""
MAX_RATE_MICRO: Final = 10_000
"""Highest rate of a hold in escrow, in micro-USDC a second: ten times the default, which factors raise sixfold."""
ADMIN_DELAY_S: Final = 48 * 3_600
"""Delay in seconds between announcing a new relayer or owner and the change, so that payers can lower allowances."""
