"""Tests every method, status and header of WHIP and WHEP on a running backend."""

import base64
import hmac
import re

import orjson
import pytest

from sightline.domain.value import replace
from sightline.ports.video import SignalReply, SignalRequest
from sightline.system.clock import SystemClock
from sightline.video.options import IceServer, Options, read_ice_servers
from sightline.video.signalling import with_turn_credentials
from tests.video.support.harness import SECRET, Rig, a_frame, a_rig, a_session_id, play_json, publishing
from tests.video.support.offers import an_obs_offer, edited

SDP = {"content-type": "application/sdp"}
TRICKLE = {"content-type": "application/trickle-ice-sdpfrag"}
PLAY = (("a=sendonly", "a=recvonly"),)


class Client:
    """A client of one endpoint."""

    def __init__(self, rig: Rig, url: str) -> None:
        self._rig = rig
        self.kind, self.token = url.rsplit("/", 2)[-2:]

    async def ask(
        self,
        method: str,
        body: bytes = b"",
        *,
        resource: str | None = None,
        headers: dict[str, str] | None = None,
        token: str | None = None,
        client_ip: str = "",
    ) -> SignalReply:
        return await self._rig.backend.signal(
            SignalRequest(
                kind=self.kind,
                method=method,
                token=token or self.token,
                resource=resource,
                headers=headers or {},
                body=body,
                base_url=self._rig.base_url,
                client_ip=client_ip,
            )
        )


def header(reply: SignalReply, name: str) -> str | None:
    found = [value for key, value in reply.headers if key.lower() == name.lower()]
    return found[0] if found else None


def detail(reply: SignalReply) -> str:
    assert header(reply, "content-type") == "application/problem+json"
    body = orjson.loads(reply.body)
    assert body["status"] == reply.status
    return str(body.get("detail", body["title"]))


async def test_what_needs_no_peer_is_answered_by_the_book():
    async with a_rig() as rig:
        made = await rig.backend.create_input(a_session_id())
        for url in (made.whip_url, made.whep_url):
            client = Client(rig, url)
            options = await client.ask("OPTIONS")
            assert options.status == 200
            assert header(options, "accept-post") == "application/sdp"
            allowed = header(options, "access-control-allow-methods") or ""
            assert {"POST", "PATCH", "DELETE", "OPTIONS", "GET"} <= set(allowed.split(", "))
            asked = header(options, "access-control-allow-headers") or ""
            assert {"Authorization", "Content-Type", "If-Match", "ETag"} <= set(asked.split(", "))
            exposed = header(options, "access-control-expose-headers") or ""
            assert {"Location", "ETag", "Link", "Access-Control-Allow-Methods"} <= set(exposed.split(", "))
            get = await client.ask("GET")
            assert (get.status, get.body) == (204, b"")
            head = await client.ask("HEAD")
            assert (head.status, header(head, "content-type")) == (200, "application/sdp")
            for method, resource in (("PUT", None), ("DELETE", None), ("PATCH", None), ("POST", "x")):
                refused = await client.ask(method, resource=resource, headers=SDP)
                assert refused.status == 405, method
                assert "POST" in (header(refused, "allow") or "")
            wrong = await client.ask("POST", b"{}", headers={"content-type": "application/json"})
            assert (wrong.status, header(wrong, "accept-post")) == (415, "application/sdp")
            patch = await client.ask("PATCH", b"", resource="x", headers=SDP)
            assert (patch.status, header(patch, "accept-patch")) == (415, "application/trickle-ice-sdpfrag")
            assert header(patch, "access-control-allow-origin") == "*"


async def test_a_token_opens_one_input_for_one_purpose():
    async with a_rig() as rig:
        made = await rig.backend.create_input(a_session_id())
        whip, whep = Client(rig, made.whip_url), Client(rig, made.whep_url)
        not_open = rig.backend.describe_input(a_session_id())
        for token in ("", "x" * 48, whep.token, whip.token[:-2] + "AA", not_open.whip_url.rpartition("/")[2]):
            for method in ("POST", "GET", "HEAD"):
                assert (await whip.ask(method, an_obs_offer(), headers=SDP, token=token or "?")).status == 404


async def test_an_offer_is_answered_with_everything_a_client_needs():
    servers = (IceServer(url="turn:turn.example:3478", username="u", credential="c"), IceServer(url="stun:s.example"))
    async with a_rig(Options(secret=SECRET, public_url="", workers=1, ice_servers=servers)) as rig:
        made = await rig.backend.create_input(a_session_id())
        client = Client(rig, made.whip_url)
        reply = await client.ask("POST", an_obs_offer(), headers={"content-type": "application/sdp; charset=utf-8"})
        assert reply.status == 201
        assert header(reply, "content-type") == "application/sdp"
        location = header(reply, "location") or ""
        assert location.startswith(made.whip_url + "/")
        assert "?" not in location
        assert re.fullmatch(r'"[^"]+"', header(reply, "etag") or "")
        links = [value for name, value in reply.headers if name == "Link"]
        assert links[0].startswith('<turn:turn.example:3478>; rel="ice-server"; username="u"; credential="c"')
        assert links[1] == '<stun:s.example>; rel="ice-server"'
        plain = await client.ask("OPTIONS")
        assert header(plain, "link") is not None
        preflight = await client.ask("OPTIONS", headers={"access-control-request-method": "POST"})
        assert header(preflight, "link") is None, "no credentials to a preflight"

        answer = reply.body.decode()
        assert len(reply.body) < 8192, "FFmpeg's limit"
        assert answer.count("a=rtcp-mux-only") == 2
        assert answer.count("a=recvonly") == 2
        assert "a=setup:active" in answer
        assert "a=group:BUNDLE 0 1" in answer
        first = next(line for line in answer.splitlines() if line.startswith("a=candidate:"))
        assert " 127.0.0.1 " in first, "the address by which the client came stands first"
        assert "a=end-of-candidates" in answer

        resource = location.rpartition("/")[2]
        trickle = b"a=ice-ufrag:abcd\r\nm=audio 9 RTP/AVP 0\r\na=mid:0\r\n"
        trickle += b"a=candidate:1 0 udp 2113937151 x7c1.local 50000 typ host\r\na=end-of-candidates\r\n"
        for extra in ({}, {"if-match": "*"}, {"if-match": header(reply, "etag") or ""}, {"etag": '"eyevinn"'}):
            assert (await client.ask("PATCH", trickle, resource=resource, headers=TRICKLE | extra)).status == 204
        other = await client.ask("PATCH", trickle, resource=resource, headers=TRICKLE | {"if-match": '"old"'})
        assert other.status == 412
        foreign = Client(rig, (await rig.backend.create_input(a_session_id())).whip_url)
        assert (await foreign.ask("DELETE", resource=resource)).status == 404, "another session's resource"
        assert (await client.ask("DELETE", resource=resource, headers={"if-match": "whatever"})).status == 200
        assert (await client.ask("DELETE", resource=resource)).status == 404


def a_fragment(ufrag: str = "efgh", password: str = "p" * 22, more: str = "") -> bytes:
    """An SDP fragment that restarts ICE, by default of `an_obs_offer`."""
    return f"m=audio 9 RTP/AVP 0\r\na=mid:0\r\na=ice-ufrag:{ufrag}\r\na=ice-pwd:{password}\r\n{more}".encode()


@pytest.mark.parametrize("kind", ["whip", "whep"])
async def test_a_patch_with_new_credentials_restarts_ice_and_is_answered_with_ours(kind: str):
    async with a_rig() as rig:
        made = await rig.backend.create_input(a_session_id())
        async with publishing(made.whip_url):
            await a_frame(rig.backend, made.ref)
            is_viewer = kind == "whep"
            client = Client(rig, made.whep_url if is_viewer else made.whip_url)
            offer = edited(an_obs_offer(), *PLAY) if is_viewer else an_obs_offer()
            posted = await client.ask("POST", offer, headers=SDP)
            resource = (header(posted, "location") or "").rpartition("/")[2]
            etags, ours = [header(posted, "etag") or ""], [posted.body.decode()]
            for index, condition in enumerate(["*", '"*"', None]):
                extra = {"if-match": condition or etags[-1]}
                body = a_fragment(f"new{index}", more="a=candidate:1 1 udp 1 192.0.2.7 9 typ host\r\n")
                reply = await client.ask("PATCH", body, resource=resource, headers=TRICKLE | extra)
                assert (reply.status, header(reply, "content-type")) == (200, "application/trickle-ice-sdpfrag"), reply
                etags.append(header(reply, "etag") or "")
                ours.append(reply.body.decode())
            for name in ("ice-ufrag", "ice-pwd"):
                values = [re.findall(rf"a={name}:(\S+)", text)[0] for text in ours]
                assert len(set(values)) == len(values), "each restart has credentials of its own"
            assert len(set(etags)) == len(etags)
            found = [re.findall(r"a=candidate:.*", text) for text in ours]
            assert found[0]
            assert all(each == found[0] for each in found), "the sockets stay"
            trickle = b"a=ice-ufrag:new2\r\na=candidate:1 1 udp 1 192.0.2.7 10 typ host\r\n"
            for etag, status in ((etags[-1], 204), (etags[0], 412)):
                reply = await client.ask("PATCH", trickle, resource=resource, headers=TRICKLE | {"if-match": etag})
                assert reply.status == status


async def test_an_ice_restart_that_cannot_be_taken_is_told_why_and_the_publisher_stays():
    rows: list[tuple[bytes, dict[str, str], int, str]] = [
        (a_fragment(), {}, 428, "If-Match"),
        (a_fragment(), {"if-match": '"old"'}, 412, "does not name the current one"),
        (a_fragment(), {"if-match": "x" * 5_000}, 412, "does not name the current one"),
        (a_fragment(password="short"), {"if-match": "*"}, 400, "ice-pwd"),
        (a_fragment(password="x" * 257), {"if-match": "*"}, 400, "ice-pwd"),
        (a_fragment(password="p" * 22 + ":\u00e9"), {"if-match": "*"}, 400, "ice-pwd"),
        (a_fragment("x"), {"if-match": "*"}, 400, "ice-ufrag"),
        (a_fragment("x" * 257), {"if-match": "*"}, 400, "ice-ufrag"),
        (b"a=ice-ufrag:efgh\r\n", {"if-match": "*"}, 400, "ice-pwd"),
        (b"a=ice-ufrag:\r\na=ice-pwd:\r\n", {"if-match": "*"}, 400, "ice-ufrag"),
        (b"\xff\xfe\0a=ice-ufrag:\xff\xff\xff\xff\n", {"if-match": "*"}, 204, ""),  # garbage that names nothing
        (b"a=ice-ufrag:\xff\xff\xff\xff\n", {"if-match": "*"}, 400, "ice-ufrag"),
        (b"", {"if-match": "*"}, 204, ""),
        (a_fragment("abcd", more="a=candidate:1 1 udp 1 8.8.8.8 9 typ host\r\n" * 5_000), {}, 204, ""),
    ]
    async with a_rig() as rig:
        made = await rig.backend.create_input(a_session_id())
        other = Client(rig, (await rig.backend.create_input(a_session_id())).whip_url)
        client = Client(rig, made.whip_url)
        posted = await client.ask("POST", an_obs_offer(), headers=SDP)
        resource = (header(posted, "location") or "").rpartition("/")[2]
        for body, extra, status, why in rows:
            reply = await client.ask("PATCH", body, resource=resource, headers=TRICKLE | extra)
            assert (reply.status, why in (detail(reply) if why else "")) == (status, True), (body[:60], reply)
        many = a_fragment("many", more="a=candidate:1 1 udp 1 8.8.8.8 9 typ host\r\n" * 5_000)
        for stranger, name in ((other, resource), (client, "x"), (client, "x" * 5_000)):
            refused = await stranger.ask("PATCH", many, resource=name, headers=TRICKLE | {"if-match": "*"})
            assert refused.status == 404, "no resource of this URL"
        assert (await client.ask("PATCH", many, resource=resource, headers=TRICKLE | {"if-match": "*"})).status == 200
        (row,) = await rig.backend.stats()
        assert row["peers"] == 1


async def test_offers_that_cannot_be_taken_are_told_why():
    offer = an_obs_offer()
    rows = [
        (b"", 400, "not a session description"),
        (b"v=0\r\nhello", 400, "neither audio nor video"),
        (b"\xff\xfe", 400, "UTF-8"),
        (edited(offer, ("a=ice-pwd:0123456789012345678901\r\n", "")), 400, "ice-pwd"),
        (edited(offer, ("a=fingerprint", "a=nothing")), 400, "fingerprint"),
        (edited(offer, ("H264/90000", "AV1/90000")), 422, "H.264"),
        (edited(offer, ("packetization-mode=1", "packetization-mode=2")), 422, "packetization-mode"),
        (edited(offer, ("opus/48000/2", "PCMU/8000")), 422, "Opus"),
        (edited(offer, ("a=sendonly", "a=recvonly")), 422, "sendonly"),
        (edited(offer, ("m=audio", "m=video")), 422, "more than one video"),
        (edited(offer, ("a=group:BUNDLE 0 1\r\n", "")), 422, "BUNDLE"),
        (edited(offer, ("a=group:BUNDLE 0 1\r\n", "a=group:BUNDLE 1\r\n")), 422, "BUNDLE"),
        (edited(offer, ("H264/90000", "H264/" + "9" * 5_000)), 400, "not a number"),
        (edited(offer, ("m=video 9", "m=application 9")), 422, "needs a video"),
    ]
    async with a_rig() as rig:
        client = Client(rig, (await rig.backend.create_input(a_session_id())).whip_url)
        for body, status, why in rows:
            reply = await client.ask("POST", body, headers=SDP)
            assert (reply.status, why in detail(reply)) == (status, True), (reply, why)
        for edit in (("a=setup:actpass", "a=setup:passive"), ("42e01f", "64001f"), ("42e01f", "4d001f")):
            taken = await client.ask("POST", edited(offer, edit), headers=SDP)
            assert taken.status == 201, edit
        passive = await client.ask("POST", edited(offer, ("a=setup:actpass", "a=setup:active")), headers=SDP)
        assert b"a=setup:passive" in passive.body
        session_wide = edited(offer, ("a=group:BUNDLE 0 1\r\n", "a=group:BUNDLE 0 1\r\na=ice-lite\r\na=sendonly\r\n"))
        assert (await client.ask("POST", session_wide, headers=SDP)).status == 201
        (row,) = await rig.backend.stats()
        assert row["peers"] == 1, "each newer offer replaced the one still connecting"


async def test_nobody_publishing_is_a_conflict_with_a_time_to_come_again():
    async with a_rig() as rig:
        made = await rig.backend.create_input(a_session_id())
        client = Client(rig, made.whep_url)
        offer = edited(an_obs_offer(), *PLAY)
        idle = await client.ask("POST", offer, headers=SDP)
        assert idle.status == 409
        assert int(header(idle, "retry-after") or 0) >= 1
        async with publishing(made.whip_url):
            await a_frame(rig.backend, made.ref)
            taken = await client.ask("POST", offer, headers=SDP)
            assert taken.status == 201
            assert taken.body.count(b"a=sendonly") == 2
            assert b"a=ssrc-group:FID" in taken.body
            for body, why in (
                (edited(offer, ("H264/90000", "VP8/90000"), ("a=fmtp:96", "a=x:96")), "the live stream is H264"),
                (an_obs_offer(), "recvonly"),
            ):
                refused = await client.ask("POST", body, headers=SDP)
                assert (refused.status, why in detail(refused)) == (422, True), refused


async def test_limits_answer_busy():
    async with a_rig(replace(Options(secret=SECRET, public_url="", workers=1), peers_max=1, publisher_places=0)) as rig:
        one = Client(rig, (await rig.backend.create_input(a_session_id())).whip_url)
        two = Client(rig, (await rig.backend.create_input(a_session_id())).whip_url)
        assert (await one.ask("POST", an_obs_offer(), headers=SDP)).status == 201
        busy = await two.ask("POST", an_obs_offer(), headers=SDP)
        assert busy.status == 503
        assert header(busy, "retry-after") is not None


async def test_offers_to_play_that_never_connect_take_no_place_from_other_inputs():
    limits = replace(
        Options(secret=SECRET, public_url="", workers=1), peers_max=20, publisher_places=6, connecting_max=8
    )
    async with a_rig(limits) as rig:
        made, other = [await rig.backend.create_input(a_session_id()) for _ in range(2)]
        offer = edited(an_obs_offer(), *PLAY)
        async with publishing(made.whip_url), publishing(other.whip_url):
            await a_frame(rig.backend, made.ref)
            await a_frame(rig.backend, other.ref)
            flood = [await Client(rig, made.whep_url).ask("POST", offer, headers=SDP) for _ in range(30)]
            assert [reply.status for reply in flood].count(201) == 8, (
                "one input's offers are limited before they connect"
            )
            assert flood[-1].status == 503
            assert "still connecting" in detail(flood[-1])
            assert (await play_json(other.whep_url, 0.5))["frames"] > 0, "another input's viewer connects"
            third = await rig.backend.create_input(a_session_id())
            taken = await Client(rig, third.whip_url).ask("POST", an_obs_offer(), headers=SDP)
            assert taken.status == 201, "a publisher of another input has its place"


async def test_one_address_cannot_hold_the_places_of_all_viewers():
    limits = replace(Options(secret=SECRET, public_url="", workers=1), connecting_per_address_max=3)
    async with a_rig(limits) as rig:
        inputs = [await rig.backend.create_input(a_session_id()) for _ in range(2)]
        offer = edited(an_obs_offer(), *PLAY)
        async with publishing(inputs[0].whip_url), publishing(inputs[1].whip_url):
            statuses = []
            for index in range(4):
                made = inputs[index % 2]
                await a_frame(rig.backend, made.ref)
                reply = await Client(rig, made.whep_url).ask("POST", offer, headers=SDP, client_ip="192.0.2.1")
                statuses.append(reply.status)
            assert statuses == [201, 201, 201, 503]
            elsewhere = await Client(rig, inputs[0].whep_url).ask("POST", offer, headers=SDP, client_ip="192.0.2.2")
            assert elsewhere.status == 201


async def test_ice_servers_are_told_only_to_holders_of_a_valid_token():
    servers = (IceServer(url="turn:turn.example:3478"), IceServer(url="stun:s.example"))
    options = Options(
        secret=SECRET, public_url="", workers=1, ice_servers=servers, turn_secret="shared", turn_ttl_s=600
    )
    async with a_rig(options) as rig:
        made = await rig.backend.create_input(a_session_id())
        client = Client(rig, made.whip_url)
        for token in ("x" * 48, client.token[:-2] + "AA"):
            stranger = await client.ask("OPTIONS", token=token)
            assert (stranger.status, header(stranger, "link")) == (200, None), "CORS works, but names no servers"
        for reply in (
            await client.ask("OPTIONS"),
            await client.ask("POST", an_obs_offer(), headers=SDP),
        ):
            turn, stun = [value for name, value in reply.headers if name == "Link"]
            found = re.fullmatch(
                r'<turn:turn.example:3478>; rel="ice-server"; username="(\d+):(live_\w+)"; credential="([^"]+)"; '
                r'credential-type="password"',
                turn,
            )
            assert found is not None, turn
            expires_s, user, credential = int(found[1]), found[2], found[3]
            assert user == made.ref
            assert 0 < expires_s - SystemClock().now_ms() / 1000 <= 600
            wanted = hmac.digest(b"shared", f"{expires_s}:{user}".encode(), "sha1")
            assert base64.b64decode(credential) == wanted, "what coturn computes with use-auth-secret"
            assert stun == '<stun:s.example>; rel="ice-server"'


def test_ice_servers_are_read_from_one_setting():
    read = read_ice_servers("stun:s.example:3478  turn:t.example?transport=udp|user|pass\n")
    assert read == (
        IceServer(url="stun:s.example:3478"),
        IceServer(url="turn:t.example?transport=udp", username="user", credential="pass"),
    )
    assert read_ice_servers("") == ()
    for wrong in ("http://x", "turn:x|only-a-name", 'stun:x>;rel="y'):
        with pytest.raises(ValueError, match="not an ICE server"):
            read_ice_servers(wrong)


def test_turn_servers_get_credentials_that_expire_and_other_servers_stay_as_they_are():
    stun, own = IceServer(url="stun:s.example"), IceServer(url="turn:o.example", username="u", credential="c")
    servers = (stun, own, IceServer(url="turns:t.example"))
    given = with_turn_credentials(servers, secret="shared", ttl_s=600, now_ms=1_700_000_000_999, user="session-1")
    # The username is the last valid second; the password its HMAC-SHA1, as coturn's use-auth-secret computes it.
    password = base64.b64encode(hmac.new(b"shared", b"1700000600:session-1", "sha1").digest()).decode()
    assert given == (
        stun, own, IceServer(url="turns:t.example", username="1700000600:session-1", credential=password)
    )  # fmt: skip
    assert with_turn_credentials(servers, secret="", ttl_s=600, now_ms=0, user="x") == servers
