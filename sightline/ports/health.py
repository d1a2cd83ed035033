"""Readiness checks: whether the server should receive calls."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import final


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ReadinessCheck:
    """Result of one readiness check."""

    is_ok: bool
    detail: str
    """One sentence that explains the result to an operator."""
    figures: Mapping[str, object] = field(default_factory=dict)
    """Measured values, with units in the names."""
