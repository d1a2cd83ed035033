"""What a caller sees of every call, through either door, over a real server."""

from typing import Any

import pytest

ID = "3f0c8c8e-6a1b-4b51-9e0e-0a7f1c9d2b44"


def bearer(who: str) -> dict[str, str]:
    return {"authorization": f"Bearer {who}"}


async def test_a_success_is_enveloped(running: Any, door: str) -> None:
    async with running() as app:
        answer = await app.http.get(f"/{door}/public?color=red&tag=a&tag=b&unknown=1")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == {
        "statusCode": 200,
        "message": "Request successful",
        "data": {"params": {}, "query": {"color": "red", "tag": ["a", "b"]}, "baseUrl": app.bound.url},
        "timestamp": "2023-11-14T22:13:20.123Z",
    }


async def test_an_answer_brings_its_own_timestamp(running: Any, door: str) -> None:
    async with running() as app:
        answer = await app.http.post(f"/{door}/things", json={"name": "n", "more": 1}, headers=bearer("creator"))
    assert answer.json()["timestamp"] == "1970-01-01T00:00:01.000Z"
    assert answer.json()["data"] == {"name": "n", "size": 3}


@pytest.mark.parametrize(("sent", "kept"), [("mine-1._A", True), ("bad id", False), ("x" * 129, False), (None, False)])
async def test_every_answer_names_its_request(running: Any, door: str, sent: str | None, kept: bool) -> None:
    headers = {} if sent is None else {"x-request-id": sent}
    async with running() as app:
        for path in (f"/{door}/public", "/nowhere", f"/{door}/things/{ID}", f"/{door}/raise/bug"):
            given = (await app.http.get(path, headers=headers)).headers["x-request-id"]
            assert given == sent if kept else given.startswith("00000000-")


@pytest.mark.parametrize(
    ("method", "path", "who", "status", "code", "detail"),
    [
        ("GET", "/nowhere", None, 404, "NOT_FOUND", "route:unknown"),
        ("GET", "/nowhere", "reader", 404, "NOT_FOUND", "route:unknown"),
        ("GET", "/DOOR/public/", None, 404, "NOT_FOUND", "route:unknown"),
        ("GET", "/DOOR/things%2F" + ID, "reader", 404, "NOT_FOUND", "route:unknown"),
        ("DELETE", "/DOOR/public", None, 405, "INVALID_INPUT", "route:method"),
        ("GET", "/DOOR/things/" + ID, None, 401, "NOT_AUTHENTICATED", None),
        ("GET", "/DOOR/things/bad", None, 401, "NOT_AUTHENTICATED", None),
        ("GET", "/DOOR/things/" + ID, "unselected", 400, "INVALID_INPUT", "workspaceNotSelected"),
        ("GET", "/DOOR/things/bad", "creator", 403, "NOT_AUTHORIZED", "apiKey:scope"),
        ("POST", "/DOOR/things", "viewer", 403, "NOT_AUTHORIZED", "workspace:role"),
        ("GET", "/DOOR/things/bad", "reader", 400, "INVALID_INPUT", "path:id"),
        ("POST", "/DOOR/things", "creator", 400, "INVALID_INPUT", "thing:name"),
    ],
)
async def test_checks_come_in_their_order(
    running: Any, door: str, method: str, path: str, who: str | None, status: int, code: str, detail: str | None
) -> None:
    async with running() as app:
        headers = bearer(who) if who else {}
        answer = await app.http.request(method, path.replace("DOOR", door), headers=headers)
    body = answer.json()
    assert (answer.status_code, body["statusCode"], body["code"], body.get("detail")) == (status, status, code, detail)
    assert set(body) - {"requiredScope", "hint"} == {"statusCode", "code", "message", "timestamp"} | (
        {"detail"} if detail else set()
    )
    assert ("www-authenticate" in answer.headers) == (status == 401)
    assert ("allow" in answer.headers) == (status == 405)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"nul",
        b"NaN",
        b'{"name": NaN}',
        b'{"name": "a", "size": Infinity}',
        b'{"name": "a", "size": 1e999}',
        b'{"name": "\xff"}',
        b'{"name": "\\ud800"}',
        b'{"name": "a", "name": "b"}',
        b'{"name": "a", "x": {"y": 1, "y": 2}}',
        b'{"name": ' + b"[" * 5000 + b"]" * 5000 + b"}",
        b'{"name": ' + b"[" * 40 + b"]" * 40 + b"}",
        b'{"name": "a"} x',
    ],
)
async def test_json_with_two_meanings_or_none_is_refused(running: Any, door: str, body: bytes) -> None:
    async with running() as app:
        headers = {**bearer("creator"), "content-type": "application/json; charset=utf-8"}
        answer = await app.http.post(f"/{door}/things", content=body, headers=headers)
    assert (answer.status_code, answer.json()["detail"]) == (400, "body:json")


@pytest.mark.parametrize(
    ("body", "label"), [([], "thing:body"), ({"name": ""}, "thing:name"), ({"name": "a", "size": 0}, "thing:size")]
)
async def test_a_wrong_field_is_named(running: Any, door: str, body: object, label: str) -> None:
    async with running() as app:
        answer = await app.http.post(f"/{door}/things", json=body, headers=bearer("creator"))
    assert (answer.status_code, answer.json()["detail"]) == (400, label)


async def test_a_string_that_looks_like_a_field_is_not_a_second_field(running: Any, door: str) -> None:
    async with running() as app:
        answer = await app.http.post(f"/{door}/things", json={"name": '"name": '}, headers=bearer("creator"))
    assert answer.json()["data"]["name"] == '"name": '


@pytest.mark.parametrize(
    ("method", "what", "status", "code", "retry"),
    [
        ("GET", "bug", 500, "INTERNAL_ERROR", None),
        ("GET", "store", 503, "UNAVAILABLE", "1"),
        ("GET", "video", 503, "VIDEO_ERROR", "7"),
        ("GET", "authz", 503, "AUTHZ_ERROR", "1"),
        ("GET", "unknown", 503, "UNAVAILABLE", "1"),
        ("POST", "unknown", 504, "OUTCOME_UNKNOWN", None),
        ("GET", "refused", 409, "CONFLICT", "4"),
        ("GET", "group", 409, "CONFLICT", None),
    ],
)
async def test_what_a_handler_raises_is_mapped_and_leaks_nothing(
    running: Any, door: str, method: str, what: str, status: int, code: str, retry: str | None
) -> None:
    async with running() as app:
        answer = await app.http.request(method, f"/{door}/raise/{what}")
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert answer.headers.get("retry-after") == retry
    assert b"secret" not in answer.content


async def test_an_oversized_body_and_a_broken_request_are_enveloped_alike(running: Any, door: str) -> None:
    async with running() as app:
        answer = await app.http.post(f"/{door}/things", content=b"a" * 70_000, headers=bearer("creator"))
        assert (answer.status_code, answer.json()["code"]) == (413, "INVALID_INPUT")
        assert answer.json()["timestamp"] == "2023-11-14T22:13:20.123Z"
        assert "x-request-id" in answer.headers


async def test_an_idempotency_key_makes_a_scoped_key(running: Any, door: str) -> None:
    async with running() as app:
        headers = {**bearer("creator"), "idempotency-key": "k 1"}
        assert (await app.http.post(f"/{door}/things", json={"name": "a"}, headers=headers)).status_code == 200
        key = app.stage.seen[-1].caller().idempotency
        assert (key.workspace_id[:4], key.method, key.path, key.key) == ("1111", "POST", f"/{door}/things", "k 1")
        assert len(key.body_hash) == 64
        headers["idempotency-key"] = "x" * 256
        answer = await app.http.post(f"/{door}/things", json={"name": "a"}, headers=headers)
        assert (answer.status_code, answer.json()["detail"]) == (400, "idempotency:key")


@pytest.mark.parametrize(("tag", "status"), [('"7"', 304), ('W/"7", "8"', 304), ("*", 304), ('"8"', 200)])
async def test_an_unchanged_answer_is_304(running: Any, door: str, tag: str, status: int) -> None:
    async with running() as app:
        answer = await app.http.get(f"/{door}/tagged", headers={"if-none-match": tag})
        assert (answer.status_code, answer.headers["etag"]) == (status, '"7"')
        assert (answer.content == b"") == (status == 304)
        assert (await app.http.get(f"/{door}/tagged")).status_code == 200


async def test_head_is_get_without_a_body(running: Any, door: str) -> None:
    async with running() as app:
        answer = await app.http.head(f"/{door}/public")
    assert (answer.status_code, answer.content) == (200, b"")
    assert int(answer.headers["content-length"]) > 0


async def test_other_content_passes_through(running: Any, door: str) -> None:
    async with running() as app:
        sdp = {"content-type": "application/sdp"}
        answer = await app.http.post(f"/{door}/sdp", content=b"abc", headers=sdp)
        assert (answer.status_code, answer.content, answer.headers["location"]) == (201, b"cba", "/x")
        assert (await app.http.post(f"/{door}/sdp", json={})).status_code == 415


async def test_a_page_of_another_origin_is_refused_for_cookies_only(running: Any, door: str) -> None:
    async with running() as app:
        foreign = {"origin": "https://evil.example"}
        body = {"name": "a"}
        answer = await app.http.post(f"/{door}/things", json=body, headers={**bearer("owner"), **foreign})
        assert (answer.status_code, answer.json()["detail"]) == (403, "auth:origin")
        own = {"origin": app.bound.url}
        answer = await app.http.post(f"/{door}/things", json=body, headers={**bearer("owner"), **own})
        assert answer.status_code == 200
        answer = await app.http.post(f"/{door}/things", json=body, headers={**bearer("creator"), **foreign})
        assert answer.status_code == 200


async def test_every_call_is_observed_once_under_its_template(running: Any, door: str) -> None:
    async with running() as app:
        await app.http.get(f"/{door}/things/{ID}", headers=bearer("reader"))
        await app.http.get(f"/{door}/things/bad", headers=bearer("reader"))
        await app.http.get("/nowhere")
        template = f"/{door}/things/{{id}}"
        assert app.stage.calls == [(template, "GET", 200), (template, "GET", 400), ("unknown", "GET", 404)]


async def test_a_configured_address_is_how_callers_reach_us(running: Any, door: str) -> None:
    async with running(public_url="https://live.example") as app:
        answer = await app.http.get(f"/{door}/public")
    assert answer.json()["data"]["baseUrl"] == "https://live.example"


async def test_a_server_without_a_valid_lease_answers_nothing_that_could_be_outdated(running: Any, door: str) -> None:
    async with running(owns_data=False) as app:
        answer = await app.http.get(
            f"/{door}/things/0a000000-0000-4000-8000-000000000003", headers={"authorization": "Bearer reader"}
        )
        assert answer.status_code == 503
        assert "retry-after" in answer.headers
        assert app.stage.seen == []
        assert (await app.http.get(f"/{door}/public")).status_code == 200
