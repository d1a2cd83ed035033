"""The consumer lease that `view` requests, and how a view ends."""

import asyncio
import logging
import re

import httpx2
import pytest
import trio

from sightline.actors.deps import ActorLimits
from sightline.ports.ledger import SettlementState
from sightline_client import (
    AsyncSightline,
    EndNotConfirmedError,
    InvalidArgumentError,
    MaxChargeError,
    NoOperatorError,
    NotAuthorizedError,
    NotReachedError,
    RateLimitedError,
    ReceiptError,
    RetryPolicy,
    RevokedApiKeyError,
    SessionOverError,
)
from tests.http.fakes import a_clip
from tests.http.money.test_wallet import fund
from tests.http.world import Party, World, WorldOptions, data_of, open_world


async def test_a_view_leaves_a_lease_with_the_server_for_the_case_that_its_program_is_killed() -> None:
    async with open_world() as world:
        consumer = await world.party("CONSUMER")
        leases = []
        async with AsyncSightline(world.base_url, consumer.plaintext) as sl:
            for view in (
                sl.view(5.0, 5.0, operator_wait_s=0),
                sl.view(5.0, 5.0, operator_wait_s=0, lease_s=15),
                sl.view(5.0, 5.0, operator_wait_s=0, lease_s=None),
            ):
                with pytest.raises(NoOperatorError):
                    async with view:
                        pass
                session = data_of(await consumer.key.get(f"/api/v1/sessions/{view.session.id}"))
                leases.append(session["consumerLeaseSeconds"])
        assert leases == [120, 15, None]


async def test_sessions_are_listed_by_one_state_or_by_several() -> None:
    async with open_world() as world:
        consumer = await world.party("CONSUMER")
        session_id = (await world.request(consumer))["id"]
        async with AsyncSightline(world.base_url, consumer.plaintext) as sl:
            for state in ("REQUESTED", ["REQUESTED", "LIVE"]):
                assert [each.id async for each in sl.sessions.list(state=state)] == [session_id]
                assert [each.id for each in (await sl.sessions.page(state=state)).items] == [session_id]


async def test_a_view_takes_no_operator_of_another_place_unless_it_is_told_to() -> None:
    async with open_world() as world:
        consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
        await operator.go_online(coverageLat=52.5, coverageLng=13.4, coverageRadiusMeters=2000)
        async with AsyncSightline(world.base_url, consumer.plaintext) as sl:
            assert (await sl.quote(10.0, 10.0, seconds=60)).available_operators == 0
            with pytest.raises(NoOperatorError):
                async with sl.view(10.0, 10.0, operator_wait_s=0):
                    pass
            assert await sessions_of(operator) == []
            session = await sl.sessions.create(10.0, 10.0, require_coverage=False)
            assert (await sl.sessions.dispatch(session.id)).operator_workspace_id == operator.id


async def test_a_program_without_a_line_of_code_for_it_is_told_once_that_a_view_waits_for_an_operator(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with open_world() as world:
        consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
        await fund(world, consumer, 5_000_000)

        async def film() -> None:
            while not caplog.records:
                await trio.lowlevel.checkpoint()
            await operator.go_online()
            await start_assigned(operator)

        async with AsyncSightline(world.base_url, consumer.plaintext) as sl, trio.open_nursery() as nursery:
            nursery.start_soon(film)
            with caplog.at_level(logging.INFO, "sightline_client"), trio.fail_after(30):
                # Shorter than the Retry-After of the server, 5 s: the wait is used in full.
                async with sl.view(5.0, 5.5, operator_wait_s=4) as view:
                    nursery.cancel_scope.cancel()
        said = [(each.levelname, each.getMessage()) for each in caplog.records if each.name == "sightline_client"]
        assert said == [
            ("INFO", f"Session {view.session.id} is requested. It costs {view.session.price_text}."),
            ("WARNING", "No operator is available at 5.0, 5.5 now. Waiting for one, at most 4 s."),
            ("INFO", f"Session {view.session.id} has an operator. Waiting until its device films."),
        ]


async def test_after_three_withdrawn_dispatches_a_view_says_at_once_for_how_long_there_is_no_operator() -> None:
    async with open_world(WorldOptions(limits=ActorLimits())) as world:
        consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
        await operator.go_online()
        async with AsyncSightline(world.base_url, consumer.plaintext) as sl:
            for _ in range(3):
                session = await sl.sessions.create(5.0, 5.5, seconds=60)
                await sl.sessions.dispatch(session.id)
                await sl.sessions.end(session.id)
            view = sl.view(5.0, 5.5, operator_wait_s=2)
            assert not view.is_requested
            with pytest.raises(RateLimitedError, match=r"ended before their start.*Try again in \d+ s") as refused:
                async with view:
                    pass
            assert view.is_requested
            assert refused.value.detail == "dispatch:abandoned"
            states = [each.state async for each in sl.sessions.list(view="consumer")]
            assert states == ["CANCELLED"] * 4


async def test_a_view_says_that_its_operator_was_not_seen_lately(caplog: pytest.LogCaptureFixture) -> None:
    async with open_world() as world:
        consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
        await fund(world, consumer, 5_000_000)
        await operator.go_online()  # its device was never seen
        async with AsyncSightline(world.base_url, consumer.plaintext) as sl, trio.open_nursery() as nursery:
            nursery.start_soon(start_assigned, operator)
            for is_seen in (False, True):
                caplog.clear()
                if is_seen:
                    data_of(await operator.beat())
                async with sl.view(5.0, 5.5) as view:
                    pass
                unseen = (
                    f"Session {view.session.id} has an operator. Its device has not been seen lately, so it may film "
                    "late, or not at all. Waiting until it films."
                )
                assert [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING] == (
                    [] if is_seen else [unseen]
                )
            nursery.cancel_scope.cancel()


async def test_a_view_whose_wallet_cannot_pay_says_so_first_and_its_receipt_says_what_to_do(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with open_world() as world:
        consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
        await operator.go_online()
        address = consumer.account.address
        async with trio.open_nursery() as nursery:
            nursery.start_soon(start_assigned, operator)
            async with AsyncSightline(world.base_url, consumer.plaintext) as sl:
                async with sl.view(5.0, 5.5, seconds=60) as view:
                    warnings = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
                    price = view.session.hold_micro_usdc.usdc
                    await prove_seconds(world, operator, view.session.id)
                now_ms = world.clock.now_ms()
                await world.ledger.mark_waiting(
                    view.session.id, SettlementState.FAILED, reason="TestUSDC: amount exceeds allowance",
                    retry_at_ms=now_ms, now_ms=now_ms,
                )  # fmt: skip
                with pytest.raises(ReceiptError) as refused:
                    await view.receipt()
            unread = await consumer.mint("sessions:create", "sessions:read", "pricing:read")
            async with AsyncSightline(world.base_url, unread.headers["authorization"].removeprefix("Bearer ")) as sl:
                with pytest.raises(ReceiptError, match=r"`sightline approve` gives the allowance"):
                    await sl.sessions.settled_receipt(view.session.id)
                caplog.clear()
                async with sl.view(5.0, 5.5, seconds=60):
                    assert not any("wallet" in each.getMessage() for each in caplog.records)
            nursery.cancel_scope.cancel()
    assert warnings[0].startswith(f"The wallet covers nothing of the {price} USDC that the session may cost.")
    steps = rf"Send USDC to {address}: its balance is 0\. Run `sightline approve [\d.]+` or more: its allowance is 0\.$"
    assert re.search(steps, warnings[0], re.IGNORECASE)
    assert re.search(steps, str(refused.value), re.IGNORECASE)
    assert refused.value.refused_for == "ALLOWANCE"


async def test_a_view_is_told_of_the_own_session_that_has_the_only_operator() -> None:
    async with open_world() as world:
        consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
        await operator.go_online()
        async with AsyncSightline(world.base_url, consumer.plaintext) as sl, trio.open_nursery() as nursery:
            nursery.start_soon(start_assigned, operator)
            async with sl.view(5.0, 5.0) as view:
                with pytest.raises(NoOperatorError, match=f"in your session {view.session.id}: end that"):
                    async with sl.view(5.0, 5.0, operator_wait_s=0):
                        pass
                nursery.cancel_scope.cancel()


async def test_a_view_without_an_operator_waits_as_long_as_its_error_says() -> None:
    async with open_world() as world:
        consumer = await world.party("CONSUMER")
        async with AsyncSightline(world.base_url, consumer.plaintext) as sl:
            began_s = trio.current_time()
            with pytest.raises(NoOperatorError, match=r"within 1 s"):
                async with sl.view(5.0, 5.0, operator_wait_s=1):
                    pass
            assert trio.current_time() - began_s >= 1


async def test_a_frame_asked_for_after_the_block_is_refused_as_such_and_not_as_a_view_that_was_never_live() -> None:
    async with open_world() as world:
        consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
        await operator.go_online()
        async with AsyncSightline(world.base_url, consumer.plaintext) as sl:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(start_assigned, operator)
                async with sl.view(5.0, 5.0) as view:
                    nursery.cancel_scope.cancel()
            with pytest.raises(SessionOverError, match=r"ENDED \(CONSUMER_ENDED\) and has no more frames: the c"):
                await view.frame()


async def test_more_time_than_the_limit_pays_for_is_refused_like_a_view_and_a_view_is_entered_once() -> None:
    async with open_world() as world:
        consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
        data_of(await operator.beat())
        await operator.go_online()
        async with AsyncSightline(world.base_url, consumer.plaintext) as sl, trio.open_nursery() as nursery:
            nursery.start_soon(start_assigned, operator)
            async with sl.view(5.0, 5.5, seconds=60) as view:
                rate, hold = view.session.rate_per_second_micro_usdc, view.session.hold_micro_usdc
                with pytest.raises(MaxChargeError, match="Request at most 10 s") as refused:
                    await view.extend(60, max_charge=hold + 10 * rate)
            with pytest.raises(InvalidArgumentError, match="This view was entered before"):
                await view.__aenter__()
            nursery.cancel_scope.cancel()
    assert refused.value.affordable_s == 10


async def test_a_loop_over_frames_raises_when_the_operator_leaves_and_ends_when_the_view_was_ended() -> None:
    async with open_world() as world:
        consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
        await operator.go_online()
        async with AsyncSightline(world.base_url, consumer.plaintext) as sl, trio.open_nursery() as nursery:
            nursery.start_soon(start_assigned, operator)

            async def seen(is_ended_by: Party) -> int:
                frames = 0
                async with sl.view(5.0, 5.0) as view:
                    world.video.show(view.session.id, 1)
                    async for _ in view.frames():
                        frames += 1
                        data_of(await is_ended_by.key.post(f"/api/v1/sessions/{view.session.id}/end"))
                return frames

            assert await seen(consumer) == 1
            with pytest.raises(SessionOverError, match="the operator ended it") as ended:
                await seen(operator)
            assert ended.value.end_reason == "OPERATOR_ENDED"
            nursery.cancel_scope.cancel()


async def test_a_loop_over_proved_frames_leaves_out_those_of_a_paused_meter() -> None:
    async with open_world() as world:
        consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
        session_id = (await world.live(consumer, operator))["id"]
        async with AsyncSightline(world.base_url, consumer.plaintext) as sl, trio.open_nursery() as nursery:
            world.video.show(session_id, 1)
            paused = await sl.sessions.frame(session_id)
            assert paused is not None
            assert not paused.is_proved, "no position yet"

            async def prove() -> None:
                while 1 not in world.video.frames_after:
                    await trio.lowlevel.checkpoint()
                data_of(await operator.beat())
                world.video.show(session_id, 2)

            nursery.start_soon(prove)
            with trio.fail_after(20):
                async for frame in sl.sessions.frames(session_id, proved=True):
                    assert (frame.sequence, frame.is_proved) == (2, True)
                    break


async def test_a_view_whose_server_is_gone_says_that_it_tries_to_end_the_session(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Unplugged(httpx2.AsyncHTTPTransport):
        is_out = False

        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            if self.is_out:
                raise httpx2.ConnectError("refused")
            return await super().handle_async_request(request)

    wire = Unplugged()
    retry = RetryPolicy(attempts=2, first_delay_s=0.01)
    async with open_world() as world, httpx2.AsyncClient(transport=wire) as http:
        consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
        await operator.go_online()
        sl = AsyncSightline(world.base_url, consumer.plaintext, retry=retry, http=http)
        view = sl.view(5.0, 5.0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(start_assigned, operator)
            await view.__aenter__()
            nursery.cancel_scope.cancel()
        wire.is_out = True
        with pytest.raises(NotReachedError) as lost:
            await view.refresh()
        with pytest.raises(EndNotConfirmedError, match=r"confirmed \(Cannot reach http"):
            await view.__aexit__(NotReachedError, lost.value, None)
    said = [each.getMessage() for each in caplog.records if each.name == "sightline_client.transport"]
    first, second = [re.sub(r" \d+ s\.$", "", text) for text in said]
    assert first.endswith(": refused. Check url= or SIGHTLINE_URL, and that the server runs. Trying again for at most")
    assert second == f"Session {view.session.id} may still run. Trying to end it for at most"


async def test_a_clip_asked_for_at_once_waits_for_the_first_video_and_ends_with_the_view() -> None:
    async with open_world() as world:
        consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
        await operator.go_online()
        async with AsyncSightline(world.base_url, consumer.plaintext) as sl, trio.open_nursery() as nursery:
            nursery.start_soon(start_assigned, operator)
            with trio.fail_after(30):
                async with sl.view(5.0, 5.0) as view:

                    async def film() -> None:
                        while not world.video.clip_seconds:
                            await trio.lowlevel.checkpoint()
                        world.video.keep(view.session.id, a_clip(world.clock.now_ms(), b"video"))

                    nursery.start_soon(film)
                    assert (await view.clip(3)).video == b"video"
                    assert world.video.clip_seconds == [3, 3]
                    assert (await sl.sessions.clip(view.session.id, 4)).video == b"video"
                with pytest.raises(SessionOverError, match=r"ENDED \(CONSUMER_ENDED\)"):
                    await view.clip()
            nursery.cancel_scope.cancel()


async def test_a_message_to_the_operator_is_returned() -> None:
    async with open_world() as world:
        consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
        await operator.go_online()
        async with AsyncSightline(world.base_url, consumer.plaintext) as sl, trio.open_nursery() as nursery:
            nursery.start_soon(start_assigned, operator)
            async with sl.view(5.0, 5.0) as view:
                await view.tell("turn left")
                told = await view.tell("closer")
                nursery.cancel_scope.cancel()
        assert (told.number, told.text) == (2, "closer")


async def test_a_view_is_dispatched_again_when_its_operator_does_not_start(caplog: pytest.LogCaptureFixture) -> None:
    async with open_world() as world:
        consumer, idle, ready = [await world.party(role) for role in ("CONSUMER", "SUPPLIER", "SUPPLIER")]
        await idle.go_online()
        async with AsyncSightline(world.base_url, consumer.plaintext) as sl, trio.open_nursery() as nursery:
            view = sl.view(5.0, 5.0, operator_wait_s=60)
            assigned = trio.Event()

            async def operate() -> None:
                while not (found := await sessions_of(idle)):
                    await trio.lowlevel.checkpoint()
                await idle.key.get(f"/api/v1/sessions/{found[0]}")  # acknowledges the dispatch
                await ready.go_online()
                world.clock.advance(121)
                while not (found := await sessions_of(ready)):
                    await trio.lowlevel.checkpoint()
                data_of(await ready.key.post(f"/api/v1/sessions/{found[0]}/start"))
                assigned.set()

            nursery.start_soon(operate)
            with trio.fail_after(60):
                async with view:
                    assert view.session.operator_workspace_id == ready.id
            assert assigned.is_set()
            said = f"The operator of session {view.session.id} declined or did not start. Asking for another."
            assert said in [each.getMessage() for each in caplog.records]


async def test_a_view_ends_however_often_its_asyncio_task_is_cancelled() -> None:
    async with open_world() as world:
        consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
        await operator.go_online()

        async def cancelled() -> str:
            async with AsyncSightline(world.base_url, consumer.plaintext) as sl:
                view, watching = sl.view(5.0, 5.0), asyncio.Event()

                async def watch() -> None:
                    async with view:
                        watching.set()
                        await asyncio.Event().wait()

                task = asyncio.create_task(watch())
                await watching.wait()
                while not task.done():
                    task.cancel()
                    await asyncio.sleep(0)
                assert task.cancelled()
                return view.session.id

        async with trio.open_nursery() as nursery:
            nursery.start_soon(start_assigned, operator)
            session_id = await trio.to_thread.run_sync(asyncio.run, cancelled())
            nursery.cancel_scope.cancel()
        assert data_of(await consumer.key.get(f"/api/v1/sessions/{session_id}"))["state"] == "ENDED"


async def prove_seconds(world: World, operator: Party, session_id: str) -> None:
    """Prove picture and position of a LIVE session for some seconds."""
    for sequence in range(1, 4):
        world.video.show(session_id, sequence)
        data_of(await operator.beat(lat=5.0, lng=5.5))
        world.clock.advance(3)


async def start_assigned(operator: Party) -> None:
    """Start every session that is assigned to an operator, until cancelled."""
    while True:
        for session_id in await sessions_of(operator):
            data_of(await operator.key.post(f"/api/v1/sessions/{session_id}/start"))
        await trio.lowlevel.checkpoint()


async def sessions_of(operator: Party) -> list[str]:
    """The sessions that are assigned to an operator."""
    page = data_of(await operator.key.get("/api/v1/sessions?view=operator&state=ASSIGNED"))
    return [each["id"] for each in page["items"]]


async def test_a_view_is_shared_with_a_program_that_may_only_look() -> None:
    async with open_world() as world:
        consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
        session_id = (await world.live(consumer, operator))["id"]
        world.video.show(session_id, 1)
        async with AsyncSightline(world.base_url, consumer.plaintext) as sl:
            made = await sl.sessions.share(session_id, expires_in_seconds=600, label="manager")
            assert made.key not in repr(made)
            async with AsyncSightline(world.base_url, made.key) as guest:
                view = await guest.sessions.shared(session_id)
                assert (view.state, view.shared_until) == ("LIVE", made.expires_at)
                assert (await guest.sessions.frame(session_id)) is not None
                with pytest.raises(NotAuthorizedError):
                    await guest.sessions.end(session_id)
                assert [each.is_open for each in await sl.sessions.shares(session_id)] == [True]
                assert not (await sl.sessions.revoke_share(session_id, made.share_id)).is_open
                with pytest.raises(RevokedApiKeyError):
                    await guest.sessions.shared(session_id)
