"""Readiness: whether the server should receive calls."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import final


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ReadinessCheck:
    """The result of one check."""

    is_ok: bool
    detail: str
    """One sentence for the reader of a failed probe."""
    figures: Mapping[str, object] = field(default_factory=dict)
    """What was measured, with units in the names."""
