"""Sessions over HTTP: every bound, every transition, every refusal."""

from typing import Any

import pytest
import trio

from sightline.actors.deps import ActorLimits
from sightline.domain.session.machine import MESSAGES_PER_MINUTE
from tests.http.resources.test_events import watching
from tests.http.world import BERLIN, Client, World, WorldOptions, data_of, error_of, open_world

SESSIONS = "/api/v1/sessions"
UNKNOWN = "00000000-0000-4000-8000-000000000000"


async def test_a_consumer_that_stops_calling_loses_the_session_at_its_lease(world: World) -> None:
    consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
    session = await world.request(consumer, consumerLeaseSeconds=15)
    path = f"{SESSIONS}/{session['id']}"
    assert session["consumerLeaseSeconds"] == data_of(await operator.key.get(path))["consumerLeaseSeconds"] == 15
    data_of(await operator.key.post(f"{path}/accept", {"operatorWorkspaceId": operator.id}))
    data_of(await operator.key.post(f"{path}/start"))
    world.clock.advance(14)
    assert data_of(await operator.key.get(path))["state"] == "LIVE"
    world.clock.advance(1)
    ended = data_of(await operator.key.get(path))
    assert (ended["state"], ended["endReason"]) == ("ENDED", "CONSUMER_LOST")


async def test_a_consumer_with_three_unstarted_dispatches_gets_429_with_a_time_to_wait() -> None:
    async with open_world(WorldOptions(limits=ActorLimits())) as world:
        consumer = await world.party("CONSUMER")
        for _ in range(4):
            await (await world.party("SUPPLIER")).go_online()
        sessions = [await world.request(consumer) for _ in range(4)]
        answers = [await consumer.key.post(f"{SESSIONS}/{session['id']}/dispatch") for session in sessions]
        assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
        assert error_of(answers[3]) == (429, "RATE_LIMITED", "dispatch:unstarted")
        assert answers[3].headers["retry-after"] == "5"


async def test_a_session_that_the_contract_could_not_settle_is_refused_when_it_is_created() -> None:
    async with open_world(WorldOptions(limits=ActorLimits(session_cap_micro=126_249))) as world:
        consumer = await world.party("CONSUMER")
        refused = await consumer.key.post(SESSIONS, BERLIN | {"maxDurationSeconds": 101})
        assert error_of(refused) == (400, "INVALID_INPUT", "session:cap")
        assert "at most 126249 for one session" in refused.json()["hint"]
        assert "ask for at most 100 seconds" in refused.json()["hint"]
        assert refused.json()["remainingMicroUsdc"] == "126249"
        assert data_of(await consumer.key.get(SESSIONS))["items"] == []
        assert (await world.request(consumer, maxDurationSeconds=100))["holdMicroUsdc"] == "125000"


async def test_a_hold_of_exactly_the_contracts_maximum_is_taken() -> None:
    async with open_world(WorldOptions(limits=ActorLimits(session_cap_micro=125_000))) as world:
        consumer = await world.party("CONSUMER")
        assert (await world.request(consumer, maxDurationSeconds=100))["holdMicroUsdc"] == "125000"


async def test_a_hold_above_the_callers_maximum_creates_nothing(world: World) -> None:
    consumer = await world.party("CONSUMER")
    wish = BERLIN | {"maxDurationSeconds": 100}
    headers = {"idempotency-key": "one"}
    refused = await consumer.key.post(SESSIONS, wish | {"maxHoldMicroUsdc": "124999"}, headers=headers)
    assert error_of(refused) == (409, "CONFLICT", "pricing:aboveMaximum")
    assert data_of(await consumer.key.get(SESSIONS))["items"] == []
    # The refusal does not use up the key: the caller may agree to more.
    taken = await consumer.key.post(SESSIONS, wish | {"maxHoldMicroUsdc": "125000"}, headers=headers)
    assert data_of(taken)["holdMicroUsdc"] == "125000"


@pytest.mark.parametrize("amount", ["-1", "1.5", "", 125_000, "1e9"])
async def test_a_maximum_that_is_no_amount_is_refused(world: World, amount: object) -> None:
    consumer = await world.party("CONSUMER")
    refused = await consumer.key.post(SESSIONS, BERLIN | {"maxHoldMicroUsdc": amount})
    assert error_of(refused) == (400, "INVALID_INPUT", "pricing:maximum")


async def test_defaults_are_those_of_the_interface(world: World) -> None:
    consumer = await world.party("CONSUMER")
    session = data_of(await consumer.key.post(SESSIONS, {"lat": 52.12345649, "lng": -13}))
    assert session == {
        "id": session["id"],
        "consumerWorkspaceId": consumer.id,
        "operatorWorkspaceId": None,
        "state": "REQUESTED",
        "maxDurationSeconds": 600,
        "waitTimeoutSeconds": 300,
        "consumerLeaseSeconds": None,
        "requireCoverage": False,
        "ratePerSecondMicroUsdc": session["ratePerSecondMicroUsdc"],
        "holdMicroUsdc": str(600 * int(session["ratePerSecondMicroUsdc"])),
        "startedAt": None,
        "endedAt": None,
        "cleanSeconds": 0,
        "chargedMicroUsdc": "0",
        "settlementTxHash": None,
        "videoBackendRef": None,
        "createdAt": session["createdAt"],
        "requestedLat": 52.123456,
        "requestedLng": -13.0,
        "authorized": False,
        "whepUrl": None,
        "whipUrl": None,
        "endReason": None,
        "endedBy": None,
        "meterState": None,
        "pauseReason": None,
        "assignedAt": None,
        "expiresAt": session["expiresAt"],
        "radiusMeters": 500,
        "platformFeeBps": 1500,
        "minimumSeconds": 1,
        "accruedMicroUsdc": "0",
        "quoteId": None,
        "instructions": None,
        "metadata": None,
        "fundsState": None,
        "holdTxHash": None,
        "messages": [],
        "delivery": None,
    }
    assert data_of(await consumer.wallet.get(f"{SESSIONS}/{session['id'].upper()}")) == session


@pytest.mark.parametrize(
    ("fields", "detail"),
    [
        ({"lat": 90.1}, "session:location"),
        ({"lng": -180.5}, "session:location"),
        ({"lat": "52"}, "session:location"),
        ({"lat": None}, "session:location"),
        ({"lat": True}, "session:location"),
        ({"maxDurationSeconds": 0}, "session:duration"),
        ({"maxDurationSeconds": 14_401}, "session:duration"),
        ({"maxDurationSeconds": 1.5}, "session:duration"),
        ({"consumerLeaseSeconds": 14}, "session:consumerLease"),
        ({"consumerLeaseSeconds": 601}, "session:consumerLease"),
        ({"consumerLeaseSeconds": "60"}, "session:consumerLease"),
        ({"maxDurationSeconds": "600"}, "session:duration"),
        ({"waitTimeoutSeconds": 4}, "session:waitTimeout"),
        ({"waitTimeoutSeconds": 3_601}, "session:waitTimeout"),
        ({"radiusMeters": 49}, "session:radius"),
        ({"radiusMeters": 10_001}, "session:radius"),
        ({"instructions": "x" * 501}, "session:instructions"),
        ({"metadata": []}, "session:metadata"),
        ({"metadata": {"x": "y" * 2_050}}, "session:metadata"),
        ({"quoteId": "seven"}, "session:quoteId"),
    ],
)
async def test_a_wrong_request_names_the_field(world: World, fields: dict[str, Any], detail: str) -> None:
    consumer = await world.party("CONSUMER")
    answer = await consumer.key.post(SESSIONS, BERLIN | fields)
    assert error_of(answer) == (400, "INVALID_INPUT", detail)


@pytest.mark.parametrize(
    "fields",
    [
        {"maxDurationSeconds": 1, "waitTimeoutSeconds": 5, "radiusMeters": 50},
        {"maxDurationSeconds": 14_400, "waitTimeoutSeconds": 3_600, "radiusMeters": 10_000},
        {"instructions": "x" * 500, "metadata": {"x": "y" * 2_040}},
        {"maxDurationSeconds": 600.0, "colour": "unknown fields are ignored"},
        {"instructions": "", "metadata": {}, "quoteId": None},
    ],
)
async def test_what_is_within_bounds_is_kept(world: World, fields: dict[str, Any]) -> None:
    consumer = await world.party("CONSUMER")
    session = await world.request(consumer, **fields)
    known = {key: value for key, value in fields.items() if key != "colour"}
    assert {key: session[key] for key in known} == known


async def test_a_foreign_workspace_id_is_refused_and_ones_own_is_fine(world: World) -> None:
    consumer, other = await world.party("CONSUMER"), await world.party("CONSUMER")
    refused = await consumer.key.post(SESSIONS, BERLIN | {"workspaceId": other.id})
    assert error_of(refused) == (403, "NOT_AUTHORIZED", "session:workspaceMismatch")
    await world.request(consumer, workspaceId=consumer.id)


async def test_only_a_consumer_requests(world: World) -> None:
    operator = await world.party("SUPPLIER")
    answer = await operator.key.post(SESSIONS, BERLIN)
    assert error_of(answer) == (403, "NOT_AUTHORIZED", "session:notConsumer")


async def test_a_request_is_seen_by_suppliers_that_cover_it_until_it_is_assigned(world: World) -> None:
    consumer, far, near = (
        await world.party("CONSUMER"),
        await world.party("SUPPLIER"),
        await world.party("SUPPLIER"),
    )
    await far.go_online(coverageLat=0, coverageLng=0, coverageRadiusMeters=1_000)
    session = await world.request(consumer, metadata={"private": 1}, instructions="north gate")
    path = f"{SESSIONS}/{session['id']}"
    seen = data_of(await near.key.get(path))
    assert (seen["instructions"], seen["metadata"]) == ("north gate", None)
    assert error_of(await far.key.get(path)) == (403, "NOT_AUTHORIZED", "session:workspaceMismatch")
    assert [each["id"] for each in data_of(await near.key.get(f"{SESSIONS}?view=open"))["items"]] == [session["id"]]
    assert data_of(await far.key.get(f"{SESSIONS}?view=open"))["items"] == []
    refused = await consumer.key.get(f"{SESSIONS}?view=open")
    assert error_of(refused)[:2] == (403, "NOT_OPERATOR")
    third = await world.party("SUPPLIER")
    data_of(await near.key.post(f"{path}/accept", {"operatorWorkspaceId": near.id}))
    assert error_of(await third.key.get(path))[:2] == (403, "NOT_AUTHORIZED")


async def test_urls_are_for_the_parties_while_live(world: World) -> None:
    consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
    session = await world.live(consumer, operator)
    path = f"{SESSIONS}/{session['id']}"
    mine, theirs = data_of(await operator.key.get(path)), data_of(await consumer.key.get(path))
    assert mine["whipUrl"]
    assert mine["whepUrl"]
    assert mine["meterState"] == "RUNNING"
    assert theirs["whipUrl"] is None
    assert theirs["whepUrl"] != mine["whepUrl"], "each names the credential of its caller"
    assert data_of(await consumer.key.get(f"{path}/viewer-token"))["whepUrl"] == theirs["whepUrl"]
    listed = data_of(await consumer.key.get(SESSIONS))["items"]
    assert [each["whepUrl"] for each in listed] == [theirs["whepUrl"]]
    by_wallet = data_of(await consumer.wallet.get(f"{path}/viewer-token"))["whepUrl"]
    assert "/sign-in/" in by_wallet
    assert by_wallet.endswith(consumer.id)
    assert data_of(await consumer.wallet.get(path))["whepUrl"] == by_wallet
    data_of(await operator.key.post(f"{path}/end"))
    ended = data_of(await operator.key.get(path))
    assert (ended["whipUrl"], ended["whepUrl"], ended["endReason"]) == (None, None, "OPERATOR_ENDED")
    assert error_of(await consumer.key.get(f"{path}/viewer-token"))[:2] == (409, "INVALID_STATE")
    assert error_of(await consumer.key.post(f"{path}/end"))[:2] == (409, "INVALID_STATE")


async def test_a_request_can_be_withdrawn_until_it_is_accepted(world: World) -> None:
    consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
    session = await world.request(consumer)
    cancelled = data_of(await consumer.key.delete(f"{SESSIONS}/{session['id']}"))
    assert (cancelled["state"], cancelled["endReason"]) == ("CANCELLED", "CONSUMER_CANCELLED")
    assert cancelled["endedAt"]
    assert cancelled["chargedMicroUsdc"] == "0"
    session = await world.request(consumer)
    path = f"{SESSIONS}/{session['id']}"
    data_of(await operator.key.post(f"{path}/accept", {"operatorWorkspaceId": operator.id}))
    assert error_of(await consumer.key.delete(path))[:2] == (409, "INVALID_STATE")
    assert error_of(await operator.key.post(f"{path}/end"))[:2] == (409, "INVALID_STATE")
    left = data_of(await consumer.key.post(f"{path}/end"))
    assert (left["state"], left["endReason"], left["chargedMicroUsdc"]) == ("CANCELLED", "CONSUMER_CANCELLED", "0")


async def test_accept_wants_the_operators_own_workspace(world: World) -> None:
    consumer, operator, other = (
        await world.party("CONSUMER"),
        await world.party("SUPPLIER"),
        await world.party("SUPPLIER"),
    )
    path = f"{SESSIONS}/{(await world.request(consumer))['id']}/accept"
    refused = await operator.key.post(path, {"operatorWorkspaceId": other.id})
    assert error_of(refused) == (403, "NOT_AUTHORIZED", "session:workspaceMismatch")
    assert error_of(await consumer.key.post(path, {"operatorWorkspaceId": consumer.id}))[:2] == (403, "NOT_OPERATOR")
    empty = await operator.key.post(path)
    assert error_of(empty) == (400, "INVALID_INPUT", "session:operatorWorkspaceId")
    wrong = await operator.key.post(path, {"operatorWorkspaceId": 7})
    assert error_of(wrong) == (400, "INVALID_INPUT", "session:operatorWorkspaceId")
    assert data_of(await operator.key.post(path, {"operatorWorkspaceId": operator.id}))["authorized"] is True
    workspace = data_of(await operator.key.get(operator.path))
    assert workspace["availabilityState"] == "OFFLINE"


async def test_dispatch_without_an_operator_is_503_and_changes_nothing(world: World) -> None:
    consumer = await world.party("CONSUMER")
    session = await world.request(consumer)
    path = f"{SESSIONS}/{session['id']}"
    answer = await consumer.key.post(f"{path}/dispatch")
    assert error_of(answer)[:2] == (503, "UNAVAILABLE")
    assert (answer.json()["message"], answer.headers["retry-after"]) == ("No operator available", "5")
    assert data_of(await consumer.key.get(path))["state"] == "REQUESTED"


async def test_cancel_all_gives_back_every_assignment_oldest_first(world: World) -> None:
    consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
    await operator.go_online()
    ids = []
    for _ in range(3):
        session = await world.request(consumer)
        ids.append(session["id"])
        path = f"{SESSIONS}/{session['id']}"
        data_of(await operator.key.post(f"{path}/accept", {"operatorWorkspaceId": operator.id}))
    token = operator.key.having(x_svc_consistency_token="whatever")
    assert data_of(await token.post(f"{SESSIONS}/cancel-all-assignments")) == {"count": 3, "cancelled": ids}
    assert data_of(await token.post(f"{SESSIONS}/cancel-all-assignments")) == {"count": 0, "cancelled": []}
    assert error_of(await consumer.key.post(f"{SESSIONS}/cancel-all-assignments"))[:2] == (403, "NOT_OPERATOR")


async def test_a_session_that_does_not_exist_is_404_and_a_bad_id_400(world: World) -> None:
    party = await world.party("CONSUMER", "SUPPLIER")
    accept = {"operatorWorkspaceId": party.id}
    for method, tail, body in (
        ("GET", "", None),
        ("DELETE", "", None),
        ("POST", "/dispatch", None),
        ("POST", "/accept", accept),
        ("POST", "/start", None),
        ("POST", "/end", None),
        ("GET", "/meter", None),
        ("GET", "/viewer-token", None),
        ("GET", "/frame", None),
        ("GET", "/frames", None),
        ("GET", "/events", None),
    ):
        answer = await party.key.call(method, f"{SESSIONS}/{UNKNOWN}{tail}", body)
        assert error_of(answer)[:2] == (404, "SESSION_NOT_FOUND"), tail
        answer = await party.key.call(method, f"{SESSIONS}/nonsense{tail}", body)
        assert error_of(answer)[:2] == (400, "INVALID_INPUT"), tail


async def test_video_down_at_start_leaves_the_session_assigned(world: World) -> None:
    consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
    path = f"{SESSIONS}/{(await world.request(consumer))['id']}"
    data_of(await operator.key.post(f"{path}/accept", {"operatorWorkspaceId": operator.id}))
    world.video.is_down = True
    assert error_of(await operator.key.post(f"{path}/start"))[:2] == (503, "VIDEO_ERROR")
    assert data_of(await consumer.key.get(path))["state"] == "ASSIGNED"
    world.video.is_down = False
    assert data_of(await operator.key.post(f"{path}/start"))["session"]["state"] == "LIVE"


async def test_deadlines_are_seen_by_the_first_read_after_them(world: World) -> None:
    consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
    waiting = await world.request(consumer, waitTimeoutSeconds=60)
    assigned = await world.request(consumer)
    path = f"{SESSIONS}/{assigned['id']}"
    data_of(await operator.key.post(f"{path}/accept", {"operatorWorkspaceId": operator.id}))
    world.clock.advance(121)
    listed = data_of(await consumer.key.get(f"{SESSIONS}?state=EXPIRED"))["items"]
    assert [each["id"] for each in listed] == [waiting["id"]]
    assert data_of(await consumer.key.get(f"{SESSIONS}?state=ASSIGNED"))["items"] == []
    (reopened,) = data_of(await consumer.key.get(f"{SESSIONS}?state=REQUESTED"))["items"]
    assert (reopened["id"], reopened["operatorWorkspaceId"], reopened["assignedAt"]) == (assigned["id"], None, None)
    expired = data_of(await consumer.key.get(f"{SESSIONS}/{waiting['id']}"))
    assert (expired["state"], expired["endReason"]) == ("EXPIRED", "WAIT_TIMEOUT")
    assert expired["endedAt"] == waiting["expiresAt"]
    late = await operator.key.post(f"{path}/start")
    assert error_of(late)[:2] == (403, "NOT_AUTHORIZED")
    again = await operator.key.post(f"{path}/accept", {"operatorWorkspaceId": operator.id})
    assert error_of(again) == (409, "INVALID_STATE", "session:notStarted")


async def test_the_answers_of_dispatch_and_accept_say_how_far_away_the_operator_is(world: World) -> None:
    consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
    place = {"lat": 52.53, "lng": 13.404954}  # 1.1 km north of BERLIN

    async def dispatched() -> tuple[object, object]:
        path = f"{SESSIONS}/{(await world.request(consumer, **place))['id']}"
        answer = data_of(await consumer.key.post(f"{path}/dispatch"))
        data_of(await consumer.key.post(f"{path}/end"))
        return answer["distanceMeters"], answer["coversPlace"]

    await operator.go_online()
    assert await dispatched() == (None, True)  # neither a position nor a coverage
    await operator.go_online(coverageLat=52.53, coverageLng=13.5, coverageRadiusMeters=2000)
    assert await dispatched() == (6429, False)
    await operator.go_online(coverageLat=52.52, coverageLng=13.404954, coverageRadiusMeters=5000)
    data_of(await operator.beat())
    assert await dispatched() == (1112, True)
    path = f"{SESSIONS}/{(await world.request(consumer, **place, requireCoverage=True))['id']}"
    accepted = data_of(await operator.key.post(f"{path}/accept", {"operatorWorkspaceId": operator.id}))
    assert (accepted["distanceMeters"], accepted["coversPlace"], accepted["requireCoverage"]) == (1112, True, True)


@pytest.mark.parametrize("verb", ["dispatch", "accept"])
async def test_a_repeated_assignment_says_where_the_operator_was_the_first_time(world: World, verb: str) -> None:
    consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
    await operator.go_online(coverageLat=52.52, coverageLng=13.404954, coverageRadiusMeters=5000)
    data_of(await operator.beat())
    path = f"{SESSIONS}/{(await world.request(consumer, lat=52.53, lng=13.404954))['id']}"
    key = {"Idempotency-Key": "once"}

    async def assign() -> object:
        if verb == "dispatch":
            return data_of(await consumer.key.post(f"{path}/dispatch", headers=key))
        return data_of(await operator.key.post(f"{path}/accept", {"operatorWorkspaceId": operator.id}, headers=key))

    first = await assign()
    data_of(await operator.beat(lat=52.6, sequence=2))
    elsewhere = {"coverageLat": 10.0, "coverageLng": 10.0, "coverageRadiusMeters": 5}
    data_of(await operator.key.patch(operator.path, elsewhere))
    assert await assign() == first


async def test_an_operator_declines_an_assignment_and_is_not_offered_it_again(world: World) -> None:
    consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
    path = f"{SESSIONS}/{(await world.request(consumer))['id']}"
    assert error_of(await operator.key.post(f"{path}/decline"))[:2] == (403, "NOT_AUTHORIZED")
    data_of(await operator.key.post(f"{path}/accept", {"operatorWorkspaceId": operator.id}))
    assert error_of(await consumer.key.post(f"{path}/decline"))[:2] == (403, "NOT_AUTHORIZED")
    key = {"Idempotency-Key": "no-time"}
    declined = data_of(await operator.key.post(f"{path}/decline", headers=key))
    assert (declined["state"], declined["operatorWorkspaceId"], declined["assignedAt"]) == ("REQUESTED", None, None)
    assert data_of(await operator.key.post(f"{path}/decline", headers=key)) == declined
    events = data_of(await consumer.key.get(f"{path}/meter/events"))["items"]
    assert events[-1]["kind"] == "REOPENED"
    assert events[-1]["facts"][0] == {"name": "reason", "value": "DECLINED"}
    again = await operator.key.post(f"{path}/accept", {"operatorWorkspaceId": operator.id})
    assert error_of(again) == (409, "INVALID_STATE", "session:notStarted")
    other = await world.party("SUPPLIER")
    data_of(await other.key.post(f"{path}/accept", {"operatorWorkspaceId": other.id}))
    live = data_of(await other.key.post(f"{path}/start"))["session"]
    assert error_of(await other.key.post(f"{path}/decline")) == (409, "INVALID_STATE", "session:state")
    assert live["state"] == "LIVE"


async def test_pages_go_back_in_time_without_gaps_or_repeats(world: World) -> None:
    consumer = await world.party("CONSUMER")
    made = [await world.request(consumer) for _ in range(7)]
    seen: list[str] = []
    cursor = ""
    while True:
        page = data_of(await consumer.key.get(f"{SESSIONS}?limit=3{cursor}"))
        seen += [each["id"] for each in page["items"]]
        if page["nextCursor"] is None:
            break
        cursor = f"&cursor={page['nextCursor']}"
        await world.request(consumer)
    newest_first = sorted(made, key=lambda each: (each["createdAt"], each["id"]), reverse=True)
    assert seen == [each["id"] for each in newest_first]


@pytest.mark.parametrize(
    ("query", "detail"),
    [
        ("limit=0", "pagination:limit"),
        ("limit=101", "pagination:limit"),
        ("limit=ten", "pagination:limit"),
        ("cursor=nonsense", "pagination:cursor"),
        ("cursor=w1-5", "pagination:cursor"),
        ("cursor=s1-05-11111111-1111-4111-8111-111111111111", "pagination:cursor"),
        ("cursor=s1-5-11111111-1111-4111-8111-11111111111A", "pagination:cursor"),
        ("cursor=%00", "pagination:cursor"),
        ("view=all", "session:view"),
        ("state=PAUSED", "session:state"),
        ("createdAfter=yesterday", "session:createdAfter"),
        ("createdBefore=2026-11-20", "session:createdBefore"),
    ],
)
async def test_a_wrong_list_parameter_is_named(world: World, query: str, detail: str) -> None:
    consumer = await world.party("CONSUMER")
    refused = await consumer.key.get(f"{SESSIONS}?{query}")
    assert error_of(refused) == (400, "INVALID_INPUT", detail)
    assert "pattern" not in refused.text, "a sentence, and not a regular expression"


async def test_lists_are_filtered_by_side_state_and_time(world: World) -> None:
    both = await world.party("CONSUMER", "SUPPLIER")
    consumer = await world.party("CONSUMER")
    live = await world.live(consumer, both)
    own = await world.request(both)

    async def ids(query: str) -> list[str]:
        return [each["id"] for each in data_of(await both.key.get(f"{SESSIONS}?{query}"))["items"]]

    assert await ids("") == [own["id"], live["id"]]
    assert await ids("view=consumer") == [own["id"]]
    assert await ids("view=operator") == [live["id"]]
    assert await ids("state=LIVE") == [live["id"]]
    assert await ids("state=LIVE&state=REQUESTED") == [own["id"], live["id"]]
    assert await ids("createdAfter=2999-01-01T00:00:00Z") == []
    assert await ids("createdBefore=2999-01-01T00:00:00%2B01:00&unknown=1") == [own["id"], live["id"]]


async def test_two_dispatches_of_one_session_give_one_200_and_one_409(world: World) -> None:
    consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
    await operator.go_online()
    path = f"{SESSIONS}/{(await world.request(consumer))['id']}/dispatch"
    statuses: list[int] = []

    async def dispatch() -> None:
        statuses.append((await consumer.key.post(path)).status_code)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(dispatch)
        nursery.start_soon(dispatch)
    assert sorted(statuses) == [200, 409]


async def test_which_credential_ended_a_session_is_shown_to_its_own_side_only(world: World) -> None:
    consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")

    async def seen(client: Client, session_id: str) -> Any:
        return data_of(await client.get(f"/api/v1/sessions/{session_id}"))["endedBy"]

    member = await consumer.join(world.account(), "ADMIN")
    first = (await world.live(consumer, operator))["id"]
    assert await seen(consumer.key, first) is None
    ended = data_of(await member.post(f"/api/v1/sessions/{first}/end"))
    by_wallet = {"kind": "WALLET", "id": data_of(await member.get("/api/v1/me"))["walletAddress"]}
    assert ended["endedBy"] == by_wallet
    assert await seen(consumer.key, first) == by_wallet
    assert await seen(operator.key, first) is None

    second = (await world.live(consumer, operator))["id"]
    data_of(await operator.key.post(f"/api/v1/sessions/{second}/end"))
    key_id = data_of(await operator.key.get("/api/v1/me"))["keyId"]
    assert await seen(operator.wallet, second) == {"kind": "API_KEY", "id": key_id}
    assert await seen(consumer.wallet, second) is None
    for session_id in (first, second):
        events = await consumer.key.get(f"/api/v1/sessions/{session_id}/meter/events")
        assert by_wallet["id"].lower() not in events.text.lower(), "what both sides read names no credential"
        assert key_id not in events.text


async def test_a_consumer_that_leaves_before_the_start_is_named_to_itself(world: World) -> None:
    consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
    path = f"/api/v1/sessions/{(await world.request(consumer))['id']}"
    data_of(await operator.key.post(f"{path}/accept", {"operatorWorkspaceId": operator.id}))
    left = data_of(await consumer.key.post(f"{path}/end"))
    assert (left["state"], left["endedBy"]["kind"]) == ("CANCELLED", "API_KEY")
    assert data_of(await operator.key.get(path))["endedBy"] is None


# Messages to the operator.


async def a_view(world: World):
    """Consumer, operator, a stranger, and the path of the LIVE session of the first two."""
    consumer, operator, stranger = (
        await world.party("CONSUMER"),
        await world.party("SUPPLIER"),
        await world.party("CONSUMER"),
    )
    session = await world.live(consumer, operator)
    return consumer, operator, stranger, f"{SESSIONS}/{session['id']}"


async def test_both_sides_read_a_message_and_their_streams_tell_of_it(world: World) -> None:
    consumer, operator, _, path = await a_view(world)
    async with (
        watching(operator.key, f"{operator.path}/events") as workspace,
        watching(operator.key, f"{path}/events") as session,
    ):
        sent = data_of(await consumer.key.post(f"{path}/messages", {"text": "  turn left \u2190  "}))
        [message] = sent["messages"]
        assert (message["number"], message["text"]) == (1, "turn left \u2190")
        told = await workspace.until("assignment", messages=[message])
        assert told["id"] == sent["id"]
        await session.until("session", messages=[message])
    assert data_of(await operator.key.get(path))["messages"] == [message]


async def test_a_message_is_a_recorded_event_and_the_receipt_verifies(world: World) -> None:
    consumer, operator, _, path = await a_view(world)
    sent = data_of(await consumer.key.post(f"{path}/messages", {"text": "T\u00fcr zeigen \U0001f44b"}))
    data_of(await operator.key.post(f"{path}/end"))
    receipt = data_of(await consumer.key.get(f"{path}/receipt"))
    [event] = [event for event in receipt["events"] if event["kind"] == "MESSAGE"]
    assert event["facts"] == [{"name": "number", "value": 1}, {"name": "text", "value": "T\u00fcr zeigen \U0001f44b"}]
    assert data_of(await consumer.key.get(path))["messages"] == sent["messages"]


async def test_a_consumer_reads_that_the_operators_device_has_shown_its_message(world: World) -> None:
    consumer, operator, _, path = await a_view(world)
    async with watching(consumer.key, f"{path}/events") as session:
        [sent] = data_of(await consumer.key.post(f"{path}/messages", {"text": "left"}))["messages"]
        assert sent["shown"] is False
        versions = set()
        for _ in range(2):
            [marked] = data_of(await operator.key.post(f"{path}/messages/shown", {"number": 1}))["messages"]
            assert marked == {**sent, "shown": True}
            versions.add((await world.store.load_session(path.rpartition("/")[2])).session.version)
        assert len(versions) == 1, "a repeat writes nothing"
        await session.until("session", messages=[marked])
    assert (await consumer.key.post(f"{path}/messages/shown", {"number": 1})).status_code == 403
    assert (await operator.key.post(f"{path}/messages/shown", {"number": 0})).status_code == 400
    data_of(await operator.key.post(f"{path}/end"))
    assert (await operator.key.post(f"{path}/messages/shown", {"number": 1})).status_code == 409
    assert data_of(await consumer.key.get(path))["messages"] == [marked], "the end does not lose what was shown"


async def test_a_repeat_with_the_same_key_sends_once(world: World) -> None:
    consumer, _, _, path = await a_view(world)
    for _ in range(2):
        answer = await consumer.key.post(f"{path}/messages", {"text": "left"}, headers={"idempotency-key": "one"})
        assert [each["number"] for each in data_of(answer)["messages"]] == [1]


async def test_only_the_consumer_sends_and_only_while_live(world: World) -> None:
    consumer, operator, stranger, path = await a_view(world)
    for party in (operator, stranger):
        assert error_of(await party.key.post(f"{path}/messages", {"text": "left"}))[:2] == (403, "NOT_AUTHORIZED")
    data_of(await consumer.key.post(f"{path}/end"))
    refused = error_of(await consumer.key.post(f"{path}/messages", {"text": "left"}))
    assert refused == (409, "INVALID_STATE", "session:state")


@pytest.mark.parametrize("text", ["", "   ", "x" * 201, "two\nlines", "a\u0000b", "\u202eleft", 7, None])
async def test_a_message_is_one_visible_line_of_at_most_200_characters(world: World, text: object) -> None:
    consumer, _, _, path = await a_view(world)
    refused = error_of(await consumer.key.post(f"{path}/messages", {"text": text}))
    assert refused == (400, "INVALID_INPUT", "session:message")


async def test_a_message_with_a_line_break_is_refused_in_words(world: World) -> None:
    consumer, _, _, path = await a_view(world)
    refused = await consumer.key.post(f"{path}/messages", {"text": "two\nlines"})
    assert refused.json()["hint"] == "text: must be one line, without tabs and other control characters"


async def test_more_messages_than_a_minute_takes_are_asked_to_wait(world: World) -> None:
    consumer, _, _, path = await a_view(world)
    for _ in range(MESSAGES_PER_MINUTE):
        data_of(await consumer.key.post(f"{path}/messages", {"text": "left"}))
    refused = await consumer.key.post(f"{path}/messages", {"text": "left"})
    assert error_of(refused) == (429, "RATE_LIMITED", "session:messages")
    assert 0 < int(refused.headers["retry-after"]) <= 60
