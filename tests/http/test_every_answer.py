"""Whatever is sent to any route, with any credential: the answer is in the envelope, its code is in the table, and it
is one that the document announces, with data of the announced shape.
"""

import json
import random
from typing import Any

import httpx
import jsonschema_rs

from sightline.domain.refusal import Code
from sightline.http.pipeline.errors import ERRORS
from tests.http.world import Client, World

SEED = 20_261_121
REQUESTS = 2_000
UUIDS = ["3F0C8C8E-6A1B-4B51-9E0E-0A7F1C9D2B44", "not-a-uuid", "%00", "..%2f..", "ü"]
VALUES: list[Any] = [
    None, True, 0, -1, 1.5, 1e308, 10**30, "", "a", "0x" + "0" * 40, "ONLINE", "TEST", "\u0000", "x" * 5000, [], {},
    ["CONSUMER"], {"a": {"b": [1]}}, "2026-11-20T12:00:00.000Z", UUIDS[0].lower(), "1e5", 90, 600, "SUPPLIER",
]  # fmt: skip
RAW = [b"", b"{", b"[1]", b"\xff", b'{"a":1,"a":2}', b"null", b'"text"', b"NaN"]
HEADERS = [
    {},
    {"idempotency-key": "one"},
    {"idempotency-key": ""},
    {"x-svc-consistency-token": "garbage"},
    {"if-none-match": "*"},
    {"origin": "https://evil.example"},
    {"x-request-id": "mine"},
    {"last-event-id": "x"},
    {"content-type": "text/plain"},
]
STATUS_OF_HTTP = {400, 405, 408, 413, 414, 415, 417, 426, 431}
ENDLESS = ("events", "frames")


class Guesser:
    """Makes requests that are near enough to be interesting."""

    def __init__(self, document: dict[str, Any], ids: list[str]) -> None:
        self.rng = random.Random(SEED)
        self.document = document
        self.ids = ids
        self.operations = [
            (path, method, operation)
            for path, methods in document["paths"].items()
            for method, operation in methods.items()
            if not path.endswith(ENDLESS)
        ]

    def request(self) -> tuple[str, str, dict[str, Any], dict[str, Any]]:
        path, method, operation = self.rng.choice(self.operations)
        url = path
        params: dict[str, Any] = {}
        for parameter in operation["parameters"]:
            if parameter["in"] == "path":
                value = self.rng.choice(self.ids if self.rng.random() < 0.8 else UUIDS)
                url = url.replace("{" + parameter["name"] + "}", value)
            elif parameter["in"] == "query" and self.rng.random() < 0.8:
                params[parameter["name"]] = self.value(parameter["schema"])
        sent: dict[str, Any] = {"params": params, "headers": dict(self.rng.choice(HEADERS))}
        if "requestBody" in operation or self.rng.random() < 0.1:
            self.fill(operation, sent)
        wrong = self.rng.random() < 0.03
        return self.rng.choice(["PUT", "BREW", "HEAD"]) if wrong else method.upper(), url, operation, sent

    def fill(self, operation: dict[str, Any], sent: dict[str, Any]) -> None:
        if self.rng.random() < 0.15:
            sent["content"] = self.rng.choice(RAW)
            sent["headers"].setdefault("content-type", "application/json")
            return
        media = next(iter(operation.get("requestBody", {}).get("content", {"x": {"schema": {}}}).values()))
        schema = self.resolve(media["schema"])
        body = {
            name: self.value(inner) for name, inner in schema.get("properties", {}).items() if self.rng.random() < 0.8
        }
        sent["json"] = body if self.rng.random() < 0.97 else [body]

    def resolve(self, schema: dict[str, Any]) -> dict[str, Any]:
        if "$ref" in schema:
            return dict(self.document["components"]["schemas"][schema["$ref"].rpartition("/")[2]])
        return schema

    def value(self, schema: dict[str, Any]) -> Any:
        schema = self.resolve(schema)
        if self.rng.random() < 0.25:
            return self.rng.choice(VALUES)
        if "anyOf" in schema:
            return self.value(self.rng.choice(schema["anyOf"]))
        for known in ("examples", "enum"):
            if schema.get(known):
                return self.rng.choice(schema[known])
        if schema.get("format") == "uuid":
            return self.rng.choice(self.ids)
        return schema.get("default", schema.get("minimum", self.rng.choice(VALUES)))


class Judge:
    """Holds an answer against the document."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document
        self.validators: dict[str, Any] = {}

    def check(self, answer: httpx.Response, operation: dict[str, Any], told: str) -> None:
        assert answer.headers["x-request-id"], told
        if answer.status_code >= 400:
            self.check_error(answer, operation, told)
        elif answer.status_code != 304 and answer.request.method != "HEAD":
            media_type = answer.headers["content-type"].partition(";")[0]
            content = operation["responses"]["200"]["content"]
            assert media_type in content, told
            if media_type == "application/json":
                self.validate(content[media_type]["schema"], answer, told)

    def check_error(self, answer: httpx.Response, operation: dict[str, Any], told: str) -> None:
        if answer.request.method == "HEAD":
            return
        assert answer.headers["content-type"] == "application/json", told
        self.validate({"$ref": "#/components/schemas/Error"}, answer, told)
        body = answer.json()
        code = Code(body["code"])
        assert body["statusCode"] == answer.status_code, told
        assert code is not Code.INTERNAL_ERROR, told
        if code is Code.INVALID_INPUT:
            assert answer.status_code in STATUS_OF_HTTP, told
        else:
            assert answer.status_code == ERRORS[code].status, told
        announced = operation["responses"].get(str(answer.status_code))
        if announced is not None:
            announced = self.document["components"]["responses"][announced["$ref"].rpartition("/")[2]]
            assert code in announced["x-codes"], told
        else:
            # Given before a route is chosen: unknown path, other method, and a target over the length limit.
            assert answer.status_code in (404, 405, 414), told

    def validate(self, schema: dict[str, Any], answer: httpx.Response, told: str) -> None:
        key = json.dumps(schema, sort_keys=True)
        if key not in self.validators:
            whole = {**schema, "components": self.document["components"]}
            self.validators[key] = jsonschema_rs.validator_for(whole)
        errors = [str(error) for error in self.validators[key].iter_errors(answer.json())]
        assert not errors, f"{told}\n{errors[0]}"


async def test_every_answer_is_one_that_was_promised(world: World) -> None:
    document = (await world.http.get("/openapi.json")).json()
    both = await world.party("CONSUMER", "SUPPLIER")
    consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
    await both.go_online()
    live = await world.live(consumer, operator)
    ids = [both.id, consumer.id, operator.id, live["id"], (await world.request(both))["id"], UUIDS[0].lower()]
    narrow = await both.mint("wallet:read")
    clients: list[Client] = [
        both.key, both.wallet, consumer.key, operator.key, operator.wallet, narrow, world.anyone,
        Client(world, {"authorization": "Bearer nonsense"}), Client(world, {"cookie": "svc_session=forged"}),
    ]  # fmt: skip
    guesser, judge = Guesser(document, ids), Judge(document)
    seen: set[int] = set()
    for _ in range(REQUESTS):
        method, url, operation, sent = guesser.request()
        sent["headers"] |= guesser.rng.choice(clients).headers
        answer = await world.http.request(method, url, **sent)
        judge.check(answer, operation, f"{method} {url} {str(sent)[:600]}\n{answer.status_code} {answer.text[:600]}")
        seen.add(answer.status_code)
    assert seen >= {200, 400, 401, 403, 404, 405, 409, 415}
