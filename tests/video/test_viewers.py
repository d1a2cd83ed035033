"""Who may watch is asked when a play URL is used, and again while it plays."""

import httpx
import pytest
import trio

from sightline.domain.access import Holder
from sightline.domain.value import replace
from sightline.ports.video import MediaKind
from sightline.video.options import Options
from sightline.video.tokens import TokenMint
from tests.video.support.harness import SECRET, Rig, a_frame, a_rig, a_session_id, play_json, publishing
from tests.video.support.hostile import sending
from tests.video.support.offers import an_obs_offer
from tests.video.support.rights import KEY, SIGN_IN, Rights

SDP = {"content-type": "application/sdp"}


async def until_viewers(rig: Rig, count: int) -> None:
    with trio.fail_after(90):
        while sum(row["viewers"] for row in await rig.backend.stats()) != count:
            await trio.lowlevel.checkpoint()


async def offer_to(url: str) -> int:
    async with httpx.AsyncClient(timeout=90) as http:
        return (await http.post(url, content=an_obs_offer(), headers=SDP)).status_code


@pytest.mark.parametrize("holder", [KEY, SIGN_IN])
def test_a_token_names_its_session_and_credential_and_cannot_be_changed(holder: Holder) -> None:
    mint, session_id = TokenMint(SECRET), a_session_id()
    token = mint.viewer_token(session_id, holder)
    assert token == mint.viewer_token(session_id, holder), "the same at each call"
    assert mint.session_of("whep", token) == session_id
    assert mint.session_of("whip", token) is None
    assert mint.holder_of(token) == holder
    assert mint.holder_of(mint.token("whep", session_id)) is None
    for position in range(0, len(token), 7):
        changed = token[:position] + ("A" if token[position] != "A" else "B") + token[position + 1 :]
        assert mint.session_of("whep", changed) is None
        assert mint.holder_of(changed) is None
    assert TokenMint(b"another secret of 32 bytes......").holder_of(token) is None


async def test_only_a_credential_that_may_watch_is_answered_an_offer() -> None:
    rights = Rights(KEY)
    async with a_rig(access=rights.access) as rig:
        made = await rig.backend.create_input(a_session_id())
        allowed, refused = (rig.backend.whep_url_for(made.whep_url, each) for each in (KEY, SIGN_IN))
        assert await offer_to(allowed) == 409, "no publisher is connected yet"
        assert await offer_to(refused) == 403
        assert await offer_to(made.whep_url) == 403, "a token of nobody"
        rights.is_down = True
        assert await offer_to(allowed) == 503
        rights.access.may_watch = None
        assert await offer_to(allowed) == 503, "before identity is there"


async def test_a_viewer_whose_access_is_withdrawn_is_disconnected_at_the_next_check_and_others_stay() -> None:
    rights = Rights(KEY, SIGN_IN)
    options = Options(secret=SECRET, public_url="", workers=1, recheck_ms=50)
    async with a_rig(options, access=rights.access) as rig:
        made = await rig.backend.create_input(a_session_id())
        async with publishing(made.whip_url), trio.open_nursery() as nursery:
            await a_frame(rig.backend, made.ref)
            for holder in (KEY, SIGN_IN):
                nursery.start_soon(play_json, rig.backend.whep_url_for(made.whep_url, holder), 60.0)
            await until_viewers(rig, 2)
            rights.is_down = True
            asked = rights.asked
            with trio.fail_after(90):
                while rights.asked < asked + 4:
                    await trio.lowlevel.checkpoint()
            await until_viewers(rig, 2)
            rights.is_down = False
            rights.allowed.discard(SIGN_IN)
            await until_viewers(rig, 1)
            rights.allowed.discard(KEY)
            await until_viewers(rig, 0)
            nursery.cancel_scope.cancel()


async def test_viewers_are_checked_at_once_when_access_is_withdrawn() -> None:
    rights = Rights(KEY)
    options = Options(secret=SECRET, public_url="", workers=1, recheck_ms=600_000)
    async with a_rig(options, access=rights.access) as rig:
        made = await rig.backend.create_input(a_session_id())
        async with publishing(made.whip_url), trio.open_nursery() as nursery:
            await a_frame(rig.backend, made.ref)
            nursery.start_soon(play_json, rig.backend.whep_url_for(made.whep_url, KEY), 60.0)
            await until_viewers(rig, 1)
            rights.allowed.discard(KEY)
            rights.access.withdraw()
            await until_viewers(rig, 0)
            nursery.cancel_scope.cancel()


async def test_the_workspaces_of_viewers_are_told_and_to_which_of_them_video_arrives() -> None:
    watcher, silent = a_session_id(), a_session_id()
    holders = [replace(KEY, workspace_id=each) for each in (watcher, silent)]
    async with a_rig() as rig:
        made = await rig.backend.create_input(a_session_id())
        by_watcher, by_silent = (rig.backend.whep_url_for(made.whep_url, each) for each in holders)
        async with publishing(made.whip_url), trio.open_nursery() as nursery:
            await a_frame(rig.backend, made.ref)
            async with sending(by_silent, "silent"):
                await rig.heard(MediaKind.WATCHED)
                nursery.start_soon(play_json, by_watcher, 60.0)
                with trio.fail_after(120):
                    while not (both := [each for each in rig.events if len(each.viewers) == 2 and each.receiving]):
                        await rig.heard(MediaKind.WATCHED, after=len(rig.events))
            nursery.cancel_scope.cancel()
    told = [each for each in rig.events if each.kind is MediaKind.WATCHED]
    assert (told[0].viewers, told[0].receiving) == ((silent,), ())
    assert set(both[0].viewers) == {watcher, silent}
    assert {each.receiving for each in told} == {(), (watcher,)}
