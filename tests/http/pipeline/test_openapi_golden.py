"""The OpenAPI document is committed: a change of the interface shows in review."""

from pathlib import Path

import orjson

from tests.http.world import World

GOLDEN = Path(__file__).parents[3] / "docs" / "openapi.json"


async def test_the_committed_document_is_the_served_one(world: World) -> None:
    """To accept a change: fetch /openapi.json, format it with two spaces, and commit it as docs/openapi.json."""
    served = (await world.http.get("/openapi.json")).json()
    assert served == orjson.loads(GOLDEN.read_bytes())


async def test_a_code_generator_meets_numbers_and_optional_fields(world: World) -> None:
    spec = (await world.http.get("/openapi.json")).json()
    quote = {each["name"]: each for each in spec["paths"]["/api/v1/pricing/quote"]["get"]["parameters"]}
    assert [quote[name]["schema"]["type"] for name in ("lat", "lng", "durationSeconds")] == ["number"] * 2 + ["integer"]
    schemas = spec["components"]["schemas"]
    assert schemas["HeartbeatVerdict"]["required"] == ["sequence", "ok"]
    assert schemas["CreateSessionBody"]["required"] == ["lat", "lng"]
    defaulted = [
        name for schema in schemas.values() for name, each in schema.get("properties", {}).items() if "default" in each
    ]
    assert defaulted == []
