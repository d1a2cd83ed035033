"""What the tools tell an agent about its next step."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any
from uuid import UUID

import pytest
import trio
from mcp import Client

from sightline.ports.ledger import SettlementState
from sightline.ports.video import ClipMissing, ClipMissingReason
from sightline_client import AsyncSightline, usdc
from sightline_client.mcp_answers import NEW_QUOTE, VERIFY_AGAIN
from sightline_client.mcp_confirm import Confirm, extension_question, question
from sightline_client.mcp_server import build_server
from tests.client.commands.program import sightline
from tests.http.fakes import a_clip
from tests.http.money.test_wallet import fund
from tests.http.world import BERLIN, Party, World, data_of, open_world

PLACE = {"lat": BERLIN["lat"], "lng": BERLIN["lng"], "seconds": 60}


@asynccontextmanager
async def agent_of(world: World, party: Party) -> AsyncIterator[Client]:
    built = build_server(lambda _: AsyncSightline(world.base_url, party.plaintext), lambda _: Confirm.NEVER)
    async with Client(built) as client:
        yield client


async def refusal(client: Client, tool: str, **arguments: Any) -> str:
    result = await client.call_tool(tool, arguments)
    assert result.is_error
    return str(result.content[0].text)


async def test_a_quote_says_what_to_call_and_whether_anybody_is_there() -> None:
    async with open_world() as world:
        consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
        await fund(world, consumer, 5_000_000)
        async with agent_of(world, consumer) as client:
            nobody = (await client.call_tool("check_place", PLACE)).structured_content
            assert nobody["availableOperators"] == 0
            assert "No operator is free" in nobody["nextStep"]
            await operator.go_online()
            await operator.beat()
            somebody = (await client.call_tool("check_place", PLACE)).structured_content
            assert "Call request_view" in somebody["nextStep"]


async def test_a_quote_says_for_how_many_seconds_the_limits_of_the_key_are_enough() -> None:
    async with open_world() as world:
        consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
        blind = await world.party("CONSUMER", scopes=["pricing:read", "sessions:create", "sessions:read"])
        await operator.go_online()
        await operator.beat()
        async with AsyncSightline(world.base_url, consumer.plaintext) as sl:
            rate = int((await sl.quote(PLACE["lat"], PLACE["lng"], seconds=1)).rate_per_second_micro_usdc)
        async with agent_of(world, consumer) as client:
            for seconds, said in (
                (0, "Funds and limits pay for no second of a view. Tell the user"),
                (30, "Funds and limits pay for 30 s. Call check_place with at most that many"),
                (60, "Call request_view"),
            ):
                await fund(world, consumer, rate * seconds)
                place = (await client.call_tool("check_place", PLACE)).structured_content
                assert place["maxSecondsAffordable"] == seconds
                assert place["nextStep"].startswith(said)
        async with agent_of(world, blind) as client:
            place = (await client.call_tool("check_place", PLACE)).structured_content
            assert place["maxSecondsAffordable"] is None
            assert place["nextStep"].startswith("Call request_view")


async def test_a_place_whose_only_operator_films_for_the_caller_is_not_called_empty() -> None:
    async with open_world() as world:
        consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
        session_id = (await world.live(consumer, operator))["id"]
        async with agent_of(world, consumer) as client:
            place = (await client.call_tool("check_place", PLACE)).structured_content
            assert (place["availableOperators"], place["ownSessionId"]) == (0, session_id)
            assert f"Your own view {session_id}" in place["nextStep"]
            wish = PLACE | {"quote_id": place["quoteId"], "max_charge_usdc": "1"}
            said = await refusal(client, "request_view", **wish)
            assert said.startswith(f"NO_OPERATOR: Your own view {session_id} has the operator of this place")
            assert said.endswith("This request is CANCELLED, charged 0 USDC.")


async def test_a_key_that_is_not_known_is_a_matter_of_the_user() -> None:
    async with open_world() as world:
        built = build_server(lambda _: AsyncSightline(world.base_url, "svc_test_000000_" + "A" * 43))
        async with Client(built) as client:
            said = await refusal(client, "wallet")
    assert said.startswith("NOT_AUTHENTICATED (auth:credential): ")
    assert said.endswith(
        "Tell the user to check that the API key of this MCP server is valid. Do not repeat the call until then."
    )
    assert "key=" not in said


async def test_a_server_that_keeps_no_video_says_so_before_a_link_to_a_clip_is_given() -> None:
    async with open_world() as world:
        consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
        session_id = (await world.live(consumer, operator))["id"]
        world.video.keep(session_id, ClipMissing(reason=ClipMissingReason.OFF))
        async with agent_of(world, consumer) as client:
            said = await refusal(client, "get_clip", session_id=session_id)
            assert said.startswith("INVALID_INPUT (clip:off): ")


async def test_the_first_picture_of_a_view_is_waited_for() -> None:
    async with open_world() as world:
        consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
        session_id = (await world.live(consumer, operator))["id"]
        async with agent_of(world, consumer) as client, trio.open_nursery() as nursery:

            async def show() -> None:
                await world.video.missed.wait()
                world.video.show(session_id, 1)

            nursery.start_soon(show)
            result = await client.call_tool("get_frame", {"session_id": session_id})
            assert [each.type for each in result.content] == ["image", "text"]


async def test_a_picture_says_when_it_was_taken_and_how_long_the_view_goes_on() -> None:
    async with open_world() as world:
        consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
        session_id = (await world.live(consumer, operator, maxDurationSeconds=600))["id"]
        world.video.show(session_id, 1)
        async with agent_of(world, consumer) as client, AsyncSightline(world.base_url, consumer.plaintext) as sl:
            facts = facts_of(await client.call_tool("get_frame", {"session_id": session_id}))
            frame = await sl.sessions.frame(session_id)
    assert frame is not None
    assert datetime.fromisoformat(facts["capturedAt"]) == frame.captured_at
    assert 500 < facts["secondsLeft"] <= 600


async def test_a_picture_of_a_later_moment_is_waited_for() -> None:
    async with open_world() as world:
        consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
        session_id = (await world.live(consumer, operator))["id"]
        world.video.show(session_id, 1)
        async with agent_of(world, consumer) as client, trio.open_nursery() as nursery:

            async def show() -> None:
                while 1 not in world.video.frames_after:
                    await trio.lowlevel.checkpoint()
                world.video.show(session_id, 2)

            nursery.start_soon(show)
            began_s = trio.current_time()
            result = await client.call_tool("get_frame", {"session_id": session_id, "wait_seconds": 1})
            assert trio.current_time() - began_s >= 1
            assert facts_of(result)["sequence"] == 2, "the first one was captured before"
            await client.call_tool("end_session", {"session_id": session_id})
            with trio.fail_after(20):
                said = await refusal(client, "get_frame", session_id=session_id, wait_seconds=30)
            assert "the view is ENDED" in said, "at once"


async def test_a_wait_that_is_longer_than_the_view_is_refused_at_once() -> None:
    async with open_world() as world:
        consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
        session_id = (await world.live(consumer, operator, maxDurationSeconds=20))["id"]
        async with agent_of(world, consumer) as client:
            with trio.fail_after(15):
                said = await refusal(client, "get_frame", session_id=session_id, wait_seconds=30)
    assert said.startswith("INVALID_ARGUMENT: wait_seconds 30 is too long: ")
    assert said.endswith(" s are left of this view. Pass less, or call extend_view first.")


async def test_a_sequence_that_no_frame_has_yet_is_told_with_the_newest_one() -> None:
    async with open_world() as world:
        consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
        session_id = (await world.live(consumer, operator))["id"]
        world.clock.advance(10)
        world.video.show(session_id, 41)
        world.clock.advance(-10)  # so that the frame is not too old after the 5 s in which a newer one is waited for
        async with agent_of(world, consumer) as client:
            result = await client.call_tool("get_frame", {"session_id": session_id, "after": 9_000})
        assert result.content[0].text.startswith("`after` 9000 is above the newest sequence, 41. Pass the sequence")


def facts_of(result: Any) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(result.content[-1].text)
    return facts


async def test_the_first_video_of_a_view_is_waited_for_before_a_link_to_a_clip_is_given() -> None:
    async with open_world() as world:
        consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
        session_id = (await world.live(consumer, operator))["id"]
        async with agent_of(world, consumer) as client, trio.open_nursery() as nursery:

            async def film() -> None:
                while not world.video.clip_seconds:
                    await trio.lowlevel.checkpoint()
                world.video.keep(session_id, a_clip(world.clock.now_ms(), b"video"))

            nursery.start_soon(film)
            result = await client.call_tool("get_clip", {"session_id": session_id})
            assert [each.type for each in result.content] == ["resource_link", "text"]
            world.video.keep(session_id, ClipMissing(reason=ClipMissingReason.STALE))
            said = await refusal(client, "get_clip", session_id=session_id)
            assert said.endswith("No video has arrived for some seconds. Try again in 1 s.")


async def test_an_error_before_the_question_begins_with_its_code_too() -> None:
    async with open_world() as world:
        blind = await world.party("CONSUMER", scopes=["pricing:read", "sessions:create"])
        built = build_server(lambda _: AsyncSightline(world.base_url, blind.plaintext), lambda _: Confirm.ALWAYS)
        async with Client(built) as client:
            quote_id = (await client.call_tool("check_place", PLACE)).structured_content["quoteId"]
            said = await refusal(client, "request_view", **PLACE, quote_id=quote_id, max_charge_usdc="5")
            assert said.startswith("NOT_AUTHORIZED")
            said = await refusal(client, "extend_view", session_id=quote_id, seconds=60, max_charge_usdc="5")
            assert said.startswith("NOT_AUTHORIZED")


async def test_an_error_begins_with_its_code_and_names_it_once() -> None:
    async with open_world() as world:
        consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
        session_id = (await world.live(consumer, operator))["id"]
        async with agent_of(world, consumer) as client:
            ended = (await client.call_tool("end_session", {"session_id": session_id})).structured_content
            assert "verify_receipt" in ended["nextStep"]
            assert ended["holdUsdc"] is None, "nothing is held"
            assert "check_place" in ended["nextStep"]
            said = await refusal(client, "get_frame", session_id=session_id)
            assert said.startswith("INVALID_STATE (session:notLive): ")
            assert said.endswith(": the view is ENDED: the consumer ended it. For another view call check_place.")
            assert said.count("INVALID_STATE") == 1
            said = await refusal(client, "tell_operator", session_id=session_id, text="turn left")
            assert said.endswith(". For another view call check_place.")
            assert "request another one" not in said
            said = await refusal(client, "get_frame", session_id="abc")
            assert said.startswith("INVALID_ARGUMENT: session_id 'abc' is not the id of a view. Pass the sessionId")


async def test_a_message_says_whether_the_operator_has_seen_it() -> None:
    async with open_world() as world:
        consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
        session_id = (await world.live(consumer, operator))["id"]
        async with agent_of(world, consumer) as client:
            told = await client.call_tool("tell_operator", {"session_id": session_id, "text": "turn left"})
            assert "wait_seconds" in told.structured_content["nextStep"]
            await client.call_tool("tell_operator", {"session_id": session_id, "text": "closer"})
            data_of(await operator.key.post(f"/api/v1/sessions/{session_id}/messages/shown", {"number": 1}))
            session = (await client.call_tool("get_session", {"session_id": session_id})).structured_content
    assert session["messages"] == [
        {"number": 1, "text": "turn left", "shown": True},
        {"number": 2, "text": "closer", "shown": False},
    ]


async def test_a_refused_payment_is_not_called_one_that_takes_seconds() -> None:
    async with open_world() as world:
        consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
        session_id = (await world.live(consumer, operator))["id"]
        async with agent_of(world, consumer) as client:
            await client.call_tool("end_session", {"session_id": session_id})
            waits = (await client.call_tool("verify_receipt", {"session_id": session_id})).structured_content
            assert (waits["payment"], waits["nextStep"]) == ("PENDING", VERIFY_AGAIN)
            now_ms, reason = world.clock.now_ms(), "TestUSDC: amount exceeds balance"
            await world.ledger.mark_waiting(
                session_id, SettlementState.FAILED, reason=reason, retry_at_ms=now_ms, now_ms=now_ms
            )
            refused = (await client.call_tool("verify_receipt", {"session_id": session_id})).structured_content
    assert refused["nextStep"].startswith("The payment was refused: the payer's balance does not cover it. Tell the")


async def test_a_view_that_waits_for_an_operator_not_seen_lately_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sightline_client.mcp_server.POLL_S", 0.01)
    monkeypatch.setattr("sightline_client.mcp_server.LIVE_WITHIN_S", 1.0)
    async with open_world() as world:
        consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
        await operator.go_online()  # its device was never seen
        async with agent_of(world, consumer) as client:
            quote_id = (await client.call_tool("check_place", PLACE)).structured_content["quoteId"]
            wish = PLACE | {"quote_id": quote_id, "max_charge_usdc": "5"}
            waiting = (await client.call_tool("request_view", wish)).structured_content
            assert waiting["state"] == "ASSIGNED"
            assert waiting["nextStep"].startswith("Its device has not been seen lately, ")


def test_the_price_of_a_view_is_named_beside_the_limit() -> None:
    asked = question(1, 2, 60, usdc("0.5"), usdc("0.07128"))
    assert asked.endswith("for up to 60 s, for up to 0.07128 USDC at this price; your limit is 0.5 USDC?")


async def test_a_quote_for_fewer_seconds_is_named_with_both_numbers() -> None:
    async with open_world() as world:
        consumer = await world.party("CONSUMER")
        async with agent_of(world, consumer) as client:
            quote_id = (await client.call_tool("check_place", PLACE)).structured_content["quoteId"]
            wish: dict[str, Any] = PLACE | {"quote_id": quote_id, "max_charge_usdc": "5"}
            missing = await refusal(client, "request_view", **{name: wish[name] for name in wish if name != "seconds"})
            assert missing == "INVALID_ARGUMENT: seconds: is missing"
            longer = await refusal(client, "request_view", **wish | {"seconds": 300})
            assert longer.startswith("INVALID_ARGUMENT: the quote is for 60 s; this request is for 300 s.")
        async with agent_of(world, consumer) as other:  # a process that does not know the quote
            said = await refusal(other, "request_view", **wish | {"seconds": 300})
            assert said.startswith("INVALID_INPUT (pricing:quoteMismatch): The quote is for 60 s at ")
            assert said.endswith("Get a quote for what is requested, or request what the quote is for.")


async def test_a_quote_that_has_expired_or_is_not_known_says_to_ask_again() -> None:
    async with open_world() as world:
        consumer = await world.party("CONSUMER")
        async with agent_of(world, consumer) as client:
            quote_id = (await client.call_tool("check_place", PLACE)).structured_content["quoteId"]
            wish: dict[str, Any] = PLACE | {"quote_id": quote_id, "max_charge_usdc": "5"}
            unknown = await refusal(client, "request_view", **wish | {"quote_id": str(UUID(int=7))})
            world.clock.advance(3_600)
            expired = await refusal(client, "request_view", **wish)
    assert unknown.startswith("NOT_FOUND (pricing:quote): there is no quote 00000000-")
    assert expired.startswith("INVALID_STATE (pricing:quoteExpired): the quote has expired.")
    for said in (unknown, expired):
        assert said.endswith(f" {NEW_QUOTE}")


async def test_an_extension_says_what_it_added_and_what_the_view_has_in_all() -> None:
    async with open_world() as world:
        consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
        session_id = (await world.live(consumer, operator))["id"]
        has_s = data_of(await consumer.key.get(f"/api/v1/sessions/{session_id}"))["maxDurationSeconds"]
        async with agent_of(world, consumer) as client:
            wish = {"session_id": session_id, "seconds": has_s + 60, "max_charge_usdc": "50"}
            answer = (await client.call_tool("extend_view", wish)).structured_content
        cli = await sightline(world, consumer, "extend", session_id, "30")
    assert answer["nextStep"].startswith(f"Added 60 s: the view has {has_s + 60} s from its start now. ")
    assert f" has 30 s more, {has_s + 90} s in all, " in cli.stdout


def test_the_question_about_an_extension_has_what_is_added_and_the_sum() -> None:
    asked = extension_question(1, 2, 60, 120, usdc("0.5"), usdc("0.14256"))
    assert asked.endswith("by 60 s, to 120 s in all, for up to 0.14256 USDC in all; your limit is 0.5 USDC?")
