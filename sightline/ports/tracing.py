"""Spans: how long the parts of a request took. Recorded only when traces are on."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Protocol


class Tracer(Protocol):
    """Records spans. HTTP opens the span of a request; actors and database add children to it."""

    def request(self, headers: Mapping[str, str]) -> AbstractContextManager[None]:
        """Record the block as the span of a request; `traceparent` of the headers is its parent."""
        ...

    def describe_request(self, route: str, method: str, status: int) -> None:
        """Name the current span after its route, and add the status of the answer."""
        ...

    def current(self) -> object | None:
        """Return what makes a span of another task a child of the current one; None if no span is recorded."""
        ...

    def span(self, name: str, parent: object | None = None) -> AbstractContextManager[None]:
        """Record the block as a child of `parent`, by default of the current span; without either nothing is recorded.

        An exception that leaves the block marks the span as failed.
        """
        ...
