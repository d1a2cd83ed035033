"""The router caches matches, within a bound in bytes."""

import pytest

from sightline.domain.refusal import Code
from sightline.http.pipeline.call import Call, Reply
from sightline.http.pipeline.errors import ApiError
from sightline.http.pipeline.router import KEPT_PATH_BYTES_MAX, Router, check_params
from sightline.http.pipeline.routes import Param, Route, routes_of


class Things:
    @Route("GET", "/things/{id}", "getThing", "t", "A thing")
    async def get(self, call: Call) -> Reply:
        return Reply({"id": call.params["id"]})

    @Route("GET", "/files/", "getFiles", "t", "The files")
    async def folder(self, call: Call) -> Reply:
        raise NotImplementedError

    @Route("GET", "/files/{path...}", "getFile", "t", "A file", params={"path": Param.TEXT})
    async def file(self, call: Call) -> Reply:
        raise NotImplementedError

    @Route("POST", "/things", "makeThing", "t", "A new thing")
    async def make(self, call: Call) -> Reply:
        raise NotImplementedError


def test_a_route_is_collected_from_its_handler() -> None:
    things = Things()
    routes = routes_of(things)
    assert [(route.operation_id, route.handler) for route in routes] == [
        ("getThing", things.get),
        ("getFiles", things.folder),
        ("getFile", things.file),
        ("makeThing", things.make),
    ]


def test_a_short_path_is_cached_and_a_long_one_is_not() -> None:
    router = Router(routes_of(Things()))
    short, long = b"/things/7", b"/things/" + b"7" * KEPT_PATH_BYTES_MAX
    assert router.match("GET", short) is router.match("GET", short)
    assert router.match("GET", long) is not router.match("GET", long)
    assert router.match("GET", long).values == ("7" * KEPT_PATH_BYTES_MAX,)
    with pytest.raises(ApiError) as unknown:
        router.match("GET", b"/" + b"x" * 8_000)
    assert unknown.value.code is Code.NOT_FOUND


@pytest.mark.parametrize(
    ("path", "operation_id", "rest"),
    [
        (b"/files/", "getFiles", None),
        (b"/files/a.css", "getFile", "a.css"),
        (b"/files/guides/w%20x/index.html", "getFile", "guides/w x/index.html"),
        (b"/files/../secrets.json", "getFile", "../secrets.json"),
    ],
)
def test_a_rest_parameter_takes_all_segments_that_are_left(path: bytes, operation_id: str, rest: str | None) -> None:
    match = Router(routes_of(Things())).match("GET", path)
    assert match.route.operation_id == operation_id
    assert check_params(match).get("path") == rest
