"""Default terms of a new settlement contract."""

from typing import Final

SESSION_CAP_MICRO: Final = 100_000_000
"""Most that one session may cost: 100 USDC. Four hours at six times the default rate cost 86.4 USDC."""
ADMIN_DELAY_S: Final = 48 * 3_600
"""Seconds between the announcement of a new relayer or owner and its power: time for payers to lower allowances."""
