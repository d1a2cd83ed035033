"""Negotiation with a publisher: congestion feedback, bundling, the bitrate limit."""

import pytest

from sightline.video.rtc.sdp import LocalTransport, build, parse
from sightline.video.rtc.twcc import EXTENSION_URI
from sightline.video.worker.negotiate import MID_URI, REPAIRED_RID_URI, RID_URI, agree_publish
from tests.video.support.offers import an_obs_offer, edited

TRANSPORT = LocalTransport(ufrag="abcd", password="x" * 22, fingerprint="AA", setup="passive", candidates=())
EXTMAP = ("a=rtpmap:96 H264/90000", f"a=extmap:4/sendrecv {EXTENSION_URI}\r\na=rtpmap:96 H264/90000")


def answer_to(offer: bytes, *, bitrate_max_bps: int = 0) -> tuple[str, int | None]:
    """Return (answer, header extension id of congestion feedback)."""
    described = parse(offer)
    agreement = agree_publish(described, bitrate_max_bps=bitrate_max_bps)
    answer = build(agreement.sections, TRANSPORT, session_number=1, bundled=bool(described.bundle))
    return answer.decode(), agreement.plan.transport_cc


@pytest.mark.parametrize("scope", ["96", "*"])
def test_transport_wide_feedback_is_agreed_in_place_of_remb(scope: str):
    feedback = f"a=rtcp-fb:96 nack\r\na=rtcp-fb:{scope} goog-remb\r\na=rtcp-fb:{scope} transport-cc"
    answer, ident = answer_to(edited(an_obs_offer(), ("a=rtcp-fb:96 nack", feedback), EXTMAP))
    assert ident == 4
    assert f"a=extmap:4 {EXTENSION_URI}\r\n" in answer
    assert "a=rtcp-fb:96 transport-cc" in answer
    assert "goog-remb" not in answer


def test_without_the_header_extension_or_its_feedback_remb_remains():
    both = "a=rtcp-fb:96 nack\r\na=rtcp-fb:96 goog-remb"
    with_feedback = ("a=rtcp-fb:96 nack", both + "\r\na=rtcp-fb:96 transport-cc")
    for offer in (
        edited(an_obs_offer(), ("a=rtcp-fb:96 nack", both), EXTMAP),
        edited(an_obs_offer(), with_feedback),
        edited(an_obs_offer(), with_feedback, (EXTMAP[0], EXTMAP[1].replace("extmap:4", "extmap:" + "4" * 40))),
    ):
        answer, ident = answer_to(offer)
        assert ident is None
        assert "a=rtcp-fb:96 goog-remb" in answer
        assert "transport-cc" not in answer
        assert "extmap" not in answer


def test_the_bitrate_limit_is_told_only_where_one_is_set():
    assert "b=" not in answer_to(an_obs_offer())[0]
    limited, _ = answer_to(an_obs_offer(), bitrate_max_bps=6_000_000)
    assert limited.count("b=AS:6000\r\nb=TIAS:6000000\r\n") == 1


def test_one_m_line_needs_no_bundle_and_gets_none():
    offer = an_obs_offer()
    head, _, rest = offer.partition(b"m=audio")
    video = rest[rest.index(b"m=video") :]
    answer, _ = answer_to(head.replace(b"a=group:BUNDLE 0 1\r\n", b"") + video)
    assert "BUNDLE" not in answer
    assert "m=video 9" in answer


def test_a_publisher_that_offers_both_codecs_may_send_either():
    both = edited(
        an_obs_offer(),
        ("UDP/TLS/RTP/SAVPF 96", "UDP/TLS/RTP/SAVPF 120 96"),
        ("a=rtpmap:96 H264/90000", "a=rtpmap:120 VP8/90000\r\na=rtpmap:96 H264/90000"),
    )
    answer, _ = answer_to(both)
    assert "m=video 9 UDP/TLS/RTP/SAVPF 120 96" in answer
    assert "a=rtpmap:120 VP8/90000" in answer
    assert "a=rtpmap:96 H264/90000" in answer


IDS = f"a=extmap:1 {MID_URI}\r\na=extmap:2 {RID_URI}\r\na=extmap:3 {REPAIRED_RID_URI}\r\n"


def a_simulcast_offer(*layers: str, ids: str = IDS, simulcast: str | None = None) -> bytes:
    rids = "".join(f"a=rid:{layer} send\r\n" for layer in layers)
    line = f"a=simulcast:{simulcast or 'send ' + ';'.join(layers)}\r\n"
    return edited(an_obs_offer(), ("a=rtpmap:96 H264/90000", f"{ids}{rids}{line}a=rtpmap:96 H264/90000"))


def test_all_layers_of_simulcast_are_taken_in_the_order_of_the_offer():
    answer, _ = answer_to(a_simulcast_offer("q", "h", "f"))
    lines = answer.split("\r\n")
    assert [line for line in lines if line.startswith(("a=rid", "a=simulcast"))] == [
        "a=rid:q recv", "a=rid:h recv", "a=rid:f recv", "a=simulcast:recv q;h;f"
    ]  # fmt: skip
    assert {f"a=extmap:1 {MID_URI}", f"a=extmap:2 {RID_URI}", f"a=extmap:3 {REPAIRED_RID_URI}"} <= set(lines)


@pytest.mark.parametrize(
    "offer",
    [
        a_simulcast_offer("q", "h", ids=""),
        a_simulcast_offer("only"),
        a_simulcast_offer("q", "h", simulcast="recv q;h"),
        a_simulcast_offer("q", "h", simulcast="send"),
        a_simulcast_offer("q", "h", simulcast="send x;y"),
        a_simulcast_offer("q", "bad id;", simulcast="send q;bad id"),
    ],
    ids=["no header extensions", "one layer", "layers to receive", "no layers", "unknown ids", "no ids"],
)
def test_an_offer_without_usable_layers_is_answered_without_simulcast(offer: bytes):
    answer, _ = answer_to(offer)
    assert "a=rid" not in answer
    assert "a=simulcast" not in answer


def test_alternatives_and_paused_layers_are_read_and_their_number_is_bounded():
    names = [f"l{number}" for number in range(12)]
    answer, _ = answer_to(a_simulcast_offer(*names, simulcast="send ~l0,l1;" + ";".join(names[2:])))
    assert "a=simulcast:recv l0;l2;l3;l4;l5;l6;l7;l8\r\n" in answer


def test_a_browser_is_told_to_begin_with_a_bitrate_for_a_picture_that_can_be_recognised():
    for most_bps, start_kbps in ((0, 1_500), (6_000_000, 1_500), (500_000, 500)):
        answer, _ = answer_to(an_obs_offer(), bitrate_max_bps=most_bps)
        (told,) = [line for line in answer.splitlines() if "x-google-start-bitrate" in line]
        assert told.startswith("a=fmtp:96 ")
        assert f"x-google-start-bitrate={start_kbps}" in told.split(" ", 1)[1].split(";")
