"""The route table: everything the interface promises about a call, in one value per call.

The dispatcher, the Quart application and the OpenAPI document are made from it, so that they cannot differ.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeAlias, final

from pydantic import BaseModel

from sightline.actors.types import Answer
from sightline.domain.access import Operation
from sightline.domain.refusal import Code
from sightline.http.pipeline.rate_limit import RateClass as RateClass

if TYPE_CHECKING:
    from sightline.http.pipeline.call import Call, Raw, Reply, Socket, Stream

_UNSAFE = frozenset({"POST", "PUT", "PATCH", "DELETE"})


class Param(Enum):
    """What a path parameter must look like."""

    UUID = auto()
    ADDRESS = auto()
    TEXT = auto()


class BodyModel(Protocol):
    """A request body's model: pydantic for the document, `parse` for the call."""

    @classmethod
    def parse(cls, raw: object, /) -> Self:
        """Validate. Raises RefusedError with the label of the first offending field."""
        ...

    @classmethod
    def model_json_schema(cls) -> dict[str, Any]:
        """See pydantic."""
        ...


class QueryModel(Protocol):
    """A query string's model."""

    @classmethod
    def parse(cls, raw: Mapping[str, Sequence[str]], /) -> Self:
        """Validate. Raises RefusedError with the label of the first offending parameter."""
        ...

    @classmethod
    def model_json_schema(cls) -> dict[str, Any]:
        """See pydantic."""
        ...


Result: TypeAlias = "Answer | Reply | Raw | Stream | Mapping[str, object]"
Handler: TypeAlias = Callable[["Call"], Awaitable[Result]]
SocketHandler: TypeAlias = Callable[["Call", "Socket"], Awaitable[None]]


@final
@dataclass(frozen=True, slots=True)
class Link:
    """An OpenAPI link: what can be called next with a value of this answer."""

    operation_id: str
    parameters: Mapping[str, str]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One call of the interface. See docs/adr/0021-http-pipeline.md for the order in which its parts are checked.

    `operation` None: public. `finishes` None: an unsafe call goes on when its client has left. `is_hot`: answered
    without Quart. `errors`: codes beyond those that the other fields imply.
    """

    method: str
    path: str
    operation_id: str
    tag: str
    summary: str
    handler: Handler
    description: str = ""
    operation: Operation | None = None
    rate: RateClass = RateClass.DEFAULT
    params: Mapping[str, Param] = field(default_factory=dict)
    body: type[BodyModel] | None = None
    body_required: bool = True
    raw_body: tuple[str, ...] = ()
    query: type[QueryModel] | None = None
    output: type[BaseModel] | None = None
    media_type: str = "application/json"
    errors: tuple[Code, ...] = ()
    is_hot: bool = False
    finishes: bool | None = None
    checks_origin: bool = True
    links: tuple[Link, ...] = ()
    is_documented: bool = True

    @property
    def is_unsafe(self) -> bool:
        """Whether the call may change something."""
        return self.method in _UNSAFE

    @property
    def outlives_caller(self) -> bool:
        """Whether the call goes on when its client has left."""
        return self.is_unsafe if self.finishes is None else self.finishes


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SocketRoute:
    """One WebSocket of the interface; it opens with GET."""

    path: str
    operation_id: str
    tag: str
    summary: str
    handler: SocketHandler
    description: str = ""
    operation: Operation | None = None
    rate: RateClass = RateClass.NONE
    params: Mapping[str, Param] = field(default_factory=dict)


AnyRoute: TypeAlias = Route | SocketRoute
