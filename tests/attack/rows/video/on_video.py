"""Attacks on WHIP, WHEP and the media workers."""

import io
import json
import time

import c2pa
import httpx
import trio

from tests.attack.catalogue import Kind, attack
from tests.attack.target import Target
from tests.e2e.server import Tenant
from tests.video.support.harness import publishing
from tests.video.support.offers import an_obs_offer

SDP = {"content-type": "application/sdp"}


async def whip_urls(target: Target) -> tuple[Tenant, str, str]:
    """A LIVE session: its operator, whipUrl and whepUrl."""
    operator = await target.operator()
    started = await target.live_session(await target.tenant("CONSUMER"), operator)
    return operator, started["whipUrl"], started["whepUrl"]


async def post_offer(target: Target, url: str, offer: bytes) -> httpx.Response:
    return await target.http.post(url, content=offer, headers=SDP)


@attack("H4", "Offers that never connect shut other tenants out", Kind.FLOOD)
async def pending_offers(target: Target) -> str:
    _, whip, whep = await whip_urls(target)
    _, other_whip, _ = await whip_urls(target)
    assert (await post_offer(target, whip, an_obs_offer())).status_code == 201
    statuses: list[int] = []

    async def flood() -> None:
        statuses.append((await post_offer(target, whep, an_obs_offer())).status_code)

    async with trio.open_nursery() as nursery:
        for _ in range(300):
            nursery.start_soon(flood)
    other = await post_offer(target, other_whip, an_obs_offer())
    assert other.status_code == 201, f"another tenant's WHIP got {other.status_code}"
    return f"another tenant publishes after 300 offers ({statuses.count(429)} refused by the rate limit)"


@attack("H6", "ICE servers with credentials for a wrong token")
async def ice_servers_without_token(target: Target) -> str:
    for kind in ("whip", "whep"):
        answer = await target.http.options(f"{target.url}/{kind}/not-a-token")
        assert "link" not in answer.headers
    return "no Link header"


@attack("H7", "One offer with 1,000 candidates sends packets to arbitrary hosts and stalls signalling", Kind.FLOOD)
async def many_candidates(target: Target) -> str:
    _, whip, _ = await whip_urls(target)
    lines = "".join(
        f"a=candidate:{number} 1 udp 2130706431 198.18.{number // 250}.{number % 250 + 1} 9 typ host\r\n"
        for number in range(1_000)
    )
    offer = an_obs_offer() + lines.encode()
    started = time.monotonic()
    answer = await post_offer(target, whip, offer)
    took_s = time.monotonic() - started
    assert took_s < 10.0, f"the offer took {took_s:.1f} s"
    return f"answered {answer.status_code} in {took_s * 1_000:.0f} ms"


@attack("low", "A clock rate of 5,000 digits in an offer")
async def long_clock_rate(target: Target) -> str:
    _, whip, _ = await whip_urls(target)
    offer = an_obs_offer().replace(b"/90000", b"/" + b"9" * 5_000)
    answer = await post_offer(target, whip, offer)
    assert 400 <= answer.status_code < 500, answer.status_code
    return f"{answer.status_code}"


@attack(
    "C6", "A clip that is published from a file, signed as a capture at an invented place",
    before="BROKEN: signed as digitalCapture",
)  # fmt: skip
async def clip_signed_as_capture(target: Target) -> str:
    consumer = await target.tenant("CONSUMER")
    session = (await target.live_session(consumer, await target.operator()))["session"]
    async with publishing(session["whipUrl"]):
        with trio.fail_after(60):
            while True:
                answer = await target.call("GET", f"/sessions/{session['id']}/frame?signed=1&waitMs=1000", consumer.key)
                if answer.status_code == 200:
                    break
    with c2pa.Reader("image/jpeg", io.BytesIO(answer.content)) as reader:
        read = json.loads(reader.json())
    manifest = read["manifests"][read["active_manifest"]]
    assert "digitalCapture" not in json.dumps(manifest), "signed as digitalCapture"
    (facts,) = [each["data"] for each in manifest["assertions"] if each["label"] == "live.sightline.frame"]
    origins = facts["origins"]
    assert "operator" in origins["lat"], origins
    assert "operator" in origins["picture"], origins
    return f"picture {origins['picture']}; position {origins['lat']}"


DATA_CHANNEL = (
    b"m=application 9 UDP/DTLS/SCTP webrtc-datachannel\r\nc=IN IP4 0.0.0.0\r\na=mid:data\r\na=sctp-port:5000\r\n"
    b"a=max-message-size:262144\r\na=setup:actpass\r\n"
)


@attack("RTP", "An offer with a data channel, to flood SCTP")
async def data_channel(target: Target) -> str:
    _, whip, _ = await whip_urls(target)
    answer = await post_offer(target, whip, an_obs_offer() + DATA_CHANNEL)
    is_rejected = answer.status_code == 201 and "m=application 0 " in answer.text
    assert is_rejected or 400 <= answer.status_code < 500, (answer.status_code, answer.text)
    return f"{answer.status_code}, the data channel is rejected"
