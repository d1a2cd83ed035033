"""The console's files: who is led there, how they are cached, and what the page may load."""

import re

import pytest

from sightline.http.console.pages import content_policy
from tests.http.world import World, error_of


async def test_a_browser_is_led_to_the_console(world: World):
    answer = await world.anyone.get("/", headers={"accept": "text/html,application/xhtml+xml"})
    assert (answer.status_code, answer.headers["location"]) == (302, "/console/")
    assert (await world.anyone.get("/console")).headers["location"] == "/console/"


async def test_a_program_still_gets_json_at_the_root(world: World):
    assert error_of(await world.anyone.get("/", headers={"accept": "application/json"})) == (
        404,
        "NOT_FOUND",
        "route:unknown",
    )
    assert error_of(await world.anyone.get("/")) == (404, "NOT_FOUND", "route:unknown")


async def test_every_file_that_the_page_names_is_served_and_immutable(world: World):
    page = await world.anyone.get("/console/")
    assert page.headers["content-type"].startswith("text/html")
    assert page.headers["cache-control"] == "no-cache"
    names = re.findall(r'(?:href|src)="([^"]+)"', page.text)
    assert any(name.endswith(".js") for name in names)
    assert any(name.endswith(".css") for name in names)
    for name in names:
        file = await world.anyone.get(name)
        assert file.status_code == 200, name
        # Those of the app keep their names: an installed app asks for them again.
        is_of_the_app = name.endswith((".webmanifest", ".png"))
        assert ("immutable" in file.headers["cache-control"]) is not is_of_the_app, name


async def test_a_client_without_gzip_gets_the_same_page(world: World):
    plain = await world.anyone.get("/console/", headers={"accept-encoding": "identity"})
    packed = await world.anyone.get("/console/", headers={"accept-encoding": "gzip"})
    assert "content-encoding" not in plain.headers
    assert packed.headers["content-encoding"] == "gzip"
    assert plain.content == packed.content


@pytest.mark.parametrize("name", ["index.js", "..%2Fpy.typed", "%2e%2e", "INDEX.HTML", "index.html.gz"])
async def test_other_names_are_not_found(world: World, name: str):
    assert error_of(await world.anyone.get(f"/console/{name}")) == (404, "NOT_FOUND", "route:unknown")


async def test_the_page_may_load_its_own_files_only(world: World):
    page = await world.anyone.get("/console/")
    policies = page.headers.get_list("content-security-policy")
    assert len(policies) == 1, "a second policy would forbid everything"
    directives = dict(part.strip().split(" ", 1) for part in policies[0].split(";"))
    assert directives["default-src"] == "'none'"
    assert directives["script-src"] == directives["style-src"] == directives["worker-src"] == "'self'"
    assert directives["frame-ancestors"] == "'none'"
    assert page.headers["permissions-policy"] == "camera=(self), microphone=(self), geolocation=(self)"
    assert page.headers["referrer-policy"] == "no-referrer"


async def test_the_internal_listener_serves_the_operations_page_and_the_public_one_does_not(world: World):
    page = await world.internal.get("/ops")
    assert page.status_code == 200
    for name in re.findall(r'(?:href|src)="([^"]+)"', page.text):
        assert (await world.internal.get(name)).status_code == 200, name
    assert error_of(await world.anyone.get("/ops"))[0] == 404


async def test_the_map_needs_no_other_server(world: World):
    answer = await world.anyone.get("/console/map.json")
    assert answer.json() == {"tilesUrl": None, "attribution": "", "streets": None, "postcodes": None}
    assert answer.headers["cache-control"] == "no-cache"


def test_the_page_may_load_images_of_the_tile_server_only_if_one_is_set():
    assert "img-src 'self' data: blob:;" in content_policy([])
    policy = content_policy([], ["https://tiles.example.org/key-1/{z}/{x}/{y}.png"])
    assert "img-src 'self' data: blob: https://tiles.example.org;" in policy
    assert "tiles" not in policy.partition("connect-src")[2].partition(";")[0]


def test_the_page_may_call_the_origins_of_the_settings():
    policy = content_policy(["https://rpc.example.org/key/1?x=2", "https://video.example.org:8889"])
    assert "connect-src 'self' https://rpc.example.org https://video.example.org:8889;" in policy
    assert "key" not in policy
