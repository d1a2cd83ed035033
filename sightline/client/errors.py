"""Errors that a call to Sightline or to the chain can raise."""

from typing import Any


class ApiError(Exception):
    """The service answered with its error envelope."""

    def __init__(self, status: int, body: dict[str, Any]) -> None:
        self.status = status
        self.code = str(body.get("code", "UNKNOWN"))
        self.message = str(body.get("message", ""))
        self.detail: str | None = body.get("detail")
        where = f" ({self.detail})" if self.detail else ""
        super().__init__(f"{status} {self.code}{where}: {self.message}")


class ChainError(Exception):
    """The chain's JSON-RPC endpoint refused a call, or a transaction reverted."""
