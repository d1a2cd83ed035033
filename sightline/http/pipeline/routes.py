"""Routes: everything the interface promises about a call, declared at its handler.

`Route` and `SocketRoute` decorate the methods of a resource class; `routes_of` collects them. The router, the Quart
application and the OpenAPI document are derived from the collected routes.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import Enum, auto
from typing import Any, Final, Protocol, Self, TypeAlias, TypeVar, final

from msgspec import field
from pydantic import BaseModel

from sightline.domain.access import Operation
from sightline.domain.refusal import Code
from sightline.domain.value import Value, replace
from sightline.http.budgets import RateClass
from sightline.http.pipeline.call import Call, Raw, Reply, Socket, Stream

_UNSAFE: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_DECLARED: Final = "__declared_routes__"


class Param(Enum):
    """The required form of a path parameter."""

    UUID = auto()
    ADDRESS = auto()
    TEXT = auto()


class BodyModel(Protocol):
    """Model of a request body: a pydantic model for the OpenAPI document, `parse` for the call."""

    @classmethod
    def parse(cls, raw: object, /) -> Self:
        """Validate. Raises RefusedError with the label of the first invalid field."""
        ...

    @classmethod
    def model_json_schema(cls) -> dict[str, Any]:
        """See pydantic."""
        ...


class QueryModel(Protocol):
    """Model of a query string."""

    @classmethod
    def parse(cls, raw: Mapping[str, Sequence[str]], /) -> Self:
        """Validate. Raises RefusedError with the label of the first invalid parameter."""
        ...

    @classmethod
    def model_json_schema(cls) -> dict[str, Any]:
        """See pydantic."""
        ...


Result: TypeAlias = Reply | Raw | Stream
Handler: TypeAlias = Callable[[Call], Awaitable[Result]]
SocketHandler: TypeAlias = Callable[[Call, Socket], Awaitable[None]]
Method = TypeVar("Method", bound=Callable[..., Awaitable[object]])


@final
class Link(Value):
    """An OpenAPI link: an operation that can be called next with a value of this response."""

    operation_id: str
    parameters: Mapping[str, str]


async def _no_handler(*_: object) -> Any:
    raise AssertionError("the route was not collected by routes_of")


@final
class Route(Value):
    """One HTTP call of the interface. The order of its checks is in the docstring of `pipeline.py`.

    Attributes:
        operation: Access rule; None: public.
        finishes: Whether the call goes on when its client disconnects; None: when its method is unsafe.
        is_hot: Answered by the ASGI application itself, without Quart.
        events: Models of the data of server-sent events, by event name.
        other_media_types: Media types, without envelope, that the caller may ask for instead of JSON.
        response_headers: Schema and description of the headers of a success, by name.
        errors: Error codes beyond those implied by the other fields.
        is_for_probes: Whether monitoring calls it: the internal listener then asks for no operators' token.
        has_own_credential: Whether the handler itself checks a signature or secret; the rules of the listener do not
            apply then.
        takes_ticket: Whether the query parameter `ticket` can stand for the Authorization header.
        is_oauth: Whether errors have the form of OAuth (RFC 6749, section 5.2) instead of the envelope.
    """

    method: str
    path: str
    operation_id: str
    tag: str
    summary: str
    description: str = ""
    operation: Operation | None = None
    rate: RateClass = RateClass.DEFAULT
    params: Mapping[str, Param] = field(default_factory=dict)
    body: type[BodyModel] | None = None
    body_required: bool = True
    raw_body: tuple[str, ...] = ()
    query: type[QueryModel] | None = None
    output: type[BaseModel] | None = None
    events: Mapping[str, type[BaseModel]] = field(default_factory=dict)
    media_type: str = "application/json"
    other_media_types: tuple[str, ...] = ()
    response_headers: Mapping[str, tuple[Mapping[str, object], str]] = field(default_factory=dict)
    errors: tuple[Code, ...] = ()
    is_hot: bool = False
    finishes: bool | None = None
    checks_origin: bool = True
    has_own_credential: bool = False
    is_for_probes: bool = False
    takes_ticket: bool = False
    is_oauth: bool = False
    links: tuple[Link, ...] = ()
    is_documented: bool = True
    handler: Handler = _no_handler

    def __call__(self, method: Method) -> Method:
        """Decorate a handler."""
        return _declare(self, method)

    @property
    def is_unsafe(self) -> bool:
        """Whether the call may change state."""
        return self.method in _UNSAFE

    @property
    def outlives_caller(self) -> bool:
        """Whether the call goes on when its client disconnects."""
        return self.is_unsafe if self.finishes is None else self.finishes


@final
class SocketRoute(Value):
    """One WebSocket of the interface; it opens with GET."""

    path: str
    operation_id: str
    tag: str
    summary: str
    description: str = ""
    operation: Operation | None = None
    rate: RateClass = RateClass.NONE
    takes_ticket: bool = False
    params: Mapping[str, Param] = field(default_factory=dict)
    handler: SocketHandler = _no_handler

    def __call__(self, method: Method) -> Method:
        """Decorate a handler."""
        return _declare(self, method)


AnyRoute: TypeAlias = Route | SocketRoute


def routes_of(resource: object) -> tuple[AnyRoute, ...]:
    """The routes declared by the methods of a resource, in order, each with its bound handler."""
    return tuple(
        replace(route, handler=getattr(resource, name))
        for name, method in vars(type(resource)).items()
        for route in getattr(method, _DECLARED, ())
    )


def _declare(route: AnyRoute, method: Method) -> Method:
    setattr(method, _DECLARED, (route, *getattr(method, _DECLARED, ())))
    return method
