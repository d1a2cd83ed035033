"""Finds the route of a path in a tree of segments; a fixed segment takes precedence over a parameter."""

import re
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import Final, final
from urllib.parse import unquote

from msgspec import Struct, field

from sightline.domain.refusal import Code
from sightline.http.pipeline.errors import ApiError
from sightline.http.pipeline.routes import AnyRoute, Param, SocketRoute

_UUID: Final = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\Z", re.ASCII)
_ADDRESS: Final = re.compile(r"0x[0-9a-fA-F]{40}\Z", re.ASCII)
_FORMS: Final = {Param.UUID: "a UUID", Param.ADDRESS: "an address (0x and 40 hex digits)", Param.TEXT: "a text"}
SOCKET: Final = "WEBSOCKET"
PATHS_KEPT: Final = 16_384
KEPT_PATH_BYTES_MAX: Final = 256
"""Longer paths are matched anew each time, so that the cache has an upper bound in bytes (about 4 MB of paths)."""


@final
class Match(Struct):
    """A route and the raw values of its path parameters. Shared by all calls of a path."""

    route: AnyRoute
    values: tuple[str, ...]
    params: Mapping[str, str] | None = None
    """The parameters by name, once they have been checked."""


@final
class _Node(Struct):
    fixed: dict[str, "_Node"] = field(default_factory=dict)
    variable: "_Node | None" = None
    rest: "_Node | None" = None
    """Node of a parameter that takes all segments that are left, `{name...}`."""
    routes: dict[str, AnyRoute] = field(default_factory=dict)


@final
class Router:
    """Built once from the table; refuses a table in which two routes are the same."""

    def __init__(self, routes: Sequence[AnyRoute]) -> None:
        self._root = _Node()
        for route in routes:
            self._add(route)
        self._kept = lru_cache(PATHS_KEPT)(self._find)

    def match(self, method: str, raw_path: bytes) -> Match:
        """Find the route of a path as it was received: an encoded slash does not separate segments.

        Matches are cached, since a device calls one path again and again.

        Raises:
            ApiError: 404 `route:unknown`, or 405 with Allow.
        """
        if len(raw_path) > KEPT_PATH_BYTES_MAX:
            return self._find(method, raw_path)
        return self._kept(method, raw_path)

    def _add(self, route: AnyRoute) -> None:
        node = self._root
        for segment in route.path[1:].split("/"):
            if segment.endswith("...}"):
                node.rest = node = node.rest or _Node()
            elif segment.startswith("{"):
                node.variable = node = node.variable or _Node()
            else:
                node = node.fixed.setdefault(segment, _Node())
        method = SOCKET if isinstance(route, SocketRoute) else route.method
        assert method not in node.routes, f"two routes for {method} {route.path}"
        node.routes[method] = route

    def _find(self, method: str, raw_path: bytes) -> Match:
        node: _Node | None = self._root
        values: list[str] = []
        segments = raw_path.decode("latin-1")[1:].split("/")
        for at, raw in enumerate(segments):
            assert node is not None
            segment = unquote(raw) if "%" in raw else raw
            fixed = node.fixed.get(segment)
            if fixed is None and node.rest is not None:
                values.append("/".join(map(unquote, segments[at:])))
                node = node.rest
                break
            if fixed is None:
                values.append(segment)
                fixed = node.variable
            node = fixed
            if node is None:
                break
        if node is None or not node.routes:
            raise ApiError(
                Code.NOT_FOUND, "route:unknown", "There is no such path. GET /openapi.json lists those of this server"
            )
        route = node.routes.get("GET" if method == "HEAD" else method)
        if route is None:
            raise _method_not_allowed(node)
        return Match(route, tuple(values))


def _method_not_allowed(node: _Node) -> ApiError:
    allowed = {"GET" if method == SOCKET else method for method in node.routes}
    if "GET" in node.routes:
        allowed.add("HEAD")
    allow = ", ".join(sorted(allowed))
    return ApiError(
        Code.INVALID_INPUT,
        "route:method",
        f"Method not allowed. This path takes {allow}",
        status=405,
        headers=[(b"allow", allow.encode("ascii"))],
    )


@cache
def path_names(path: str) -> tuple[str, ...]:
    """The names of a path's parameters, in order."""
    return tuple(re.findall(r"{(\w+)(?:\.\.\.)?}", path))


def check_params(match: Match) -> Mapping[str, str]:
    """The path parameters by name, in canonical form.

    Raises:
        ApiError: INVALID_INPUT `path:<name>`.
    """
    if match.params is not None:
        return match.params
    params: dict[str, str] = {}
    for name, value in zip(path_names(match.route.path), match.values, strict=True):
        kind = match.route.params.get(name, Param.UUID)
        if kind is Param.UUID and _UUID.match(value):
            params[name] = value.lower()
        elif (kind is Param.ADDRESS and _ADDRESS.match(value)) or (kind is Param.TEXT and _is_text(value)):
            params[name] = value
        else:
            raise ApiError(Code.INVALID_INPUT, f"path:{name}", f"{name} in the path is not {_FORMS[kind]}")
    match.params = params
    return params


def _is_text(value: str) -> bool:
    return bool(value) and "\0" not in value and "\N{REPLACEMENT CHARACTER}" not in value
