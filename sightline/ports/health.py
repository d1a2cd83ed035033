"""Readiness checks: whether the server should receive calls."""

from collections.abc import Mapping
from typing import final

from msgspec import field

from sightline.domain.value import Value


@final
class ReadinessCheck(Value, kw_only=True):
    """Result of one readiness check."""

    is_ok: bool
    detail: str
    """One sentence that explains the result to an operator."""
    figures: Mapping[str, object] = field(default_factory=dict)
    """Measured values, with units in the names."""
