"""Default terms of a new settlement contract."""

from typing import Final

SESSION_CAP_MICRO: Final = 100_000_000
"""Maximum charge of one session: 100 USDC. Four hours at six times the default rate cost 86.4 USDC."""
ADMIN_DELAY_S: Final = 48 * 3_600
"""Delay in seconds between announcing a new relayer or owner and the change, so that payers can lower allowances."""
