"""The document says what the table says, and the page needs nothing from elsewhere."""

import base64
import hashlib
import re
from collections.abc import Iterator
from typing import Any

import trio

from sightline.http.openapi.docs_page import document_routes
from sightline.http.openapi.document import build_document
from sightline.http.pipeline.options import PipelineOptions


async def test_the_document_tells_the_table(running: Any) -> None:
    async with running() as app:
        answer = await app.http.get("/openapi.json")
    spec = answer.json()
    assert spec["openapi"] == "3.1.0"
    assert spec["info"]["version"] == "0.1.0"
    create = spec["paths"]["/quart/things"]["post"]
    assert create["operationId"] == "quartCreate"
    assert create["requestBody"]["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/ThingInput"}
    assert spec["components"]["schemas"]["ThingInput"]["required"] == ["name"]
    assert create["security"] == [{"apiKey": []}, {"walletSession": []}]
    assert set(create["responses"]) >= {"200", "400", "401", "403", "409", "413", "415", "500", "503", "504", "default"}
    assert create["responses"]["200"]["links"]["quartGet"]["parameters"] == {"id": "$response.body#/data/id"}
    envelope = create["responses"]["200"]["content"]["application/json"]["schema"]
    assert envelope["properties"]["data"] == {"$ref": "#/components/schemas/Thing"}
    assert envelope["required"] == ["statusCode", "message", "data", "timestamp"]
    assert spec["components"]["schemas"]["Thing"]["required"] == ["id", "name"]
    get = spec["paths"]["/quart/things/{id}"]["get"]
    assert get["parameters"] == [
        {"name": "id", "in": "path", "required": True, "schema": {"type": "string", "format": "uuid"}}
    ]
    missing = get["responses"]["404"]["$ref"].removeprefix("#/components/responses/")
    assert "SESSION_NOT_FOUND" in spec["components"]["responses"][missing]["description"]
    query = spec["paths"]["/quart/public"]["get"]["parameters"]
    assert [(each["name"], each["required"]) for each in query] == [("color", False), ("tag", False)]
    assert query[0]["schema"] == {"type": "string"}
    assert spec["paths"]["/quart/public"]["get"]["security"] == []
    assert spec["x-websockets"][0]["path"] == "/socket/{id}"
    assert "ThingQuery" not in spec["components"]["schemas"]


async def test_every_reference_of_the_document_leads_somewhere(running: Any) -> None:
    async with running() as app:
        spec = (await app.http.get("/openapi.json")).json()
    for ref in re.findall(r"'\$ref': '#/([^']+)'", str(spec)):
        at = spec
        for key in ref.split("/"):
            at = at[key]


async def test_the_page_holds_all_it_needs(running: Any) -> None:
    async with running() as app:
        page = await app.http.get("/docs")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert not re.search(r"https?://", page.text)
    for tag in ("script", "style"):
        source = re.search(f"<{tag}>(.*?)</{tag}>", page.text, re.DOTALL)
        assert source is not None
        digest = base64.b64encode(hashlib.sha256(source.group(1).encode()).digest()).decode()
        assert f"'sha256-{digest}'" in page.headers["content-security-policy"]


class CountedRoutes(tuple[Any, ...]):
    """No routes; counts how often they were read."""

    reads = 0

    def __iter__(self) -> Iterator[Any]:
        self.reads += 1
        return super().__iter__()


async def test_callers_who_ask_at_once_wait_for_one_build_of_the_document() -> None:
    built_once, routes = CountedRoutes(), CountedRoutes()
    build_document(built_once, "1")
    openapi = document_routes(routes, PipelineOptions())[0].handler
    bodies: list[bytes] = []

    async def ask() -> None:
        bodies.append((await openapi(None)).body)

    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(ask)
    assert (len(bodies), len(set(bodies))) == (20, 1)
    assert routes.reads == built_once.reads
