"""Negotiation: pure functions from an offer to the sections of our answer.

Source: RFC 9725 section 4.4 (WHIP offers), draft-ietf-wish-whep (WHEP offers), RFC 6184 section 8.2.2 (H.264),
RFC 8853 (simulcast).
"""

import base64
import binascii
from typing import Final, final

from sightline.domain.value import Value
from sightline.video.media.codecs import H264Format, PayloadFormat, Vp8Format
from sightline.video.media.ingest import IngestPlan
from sightline.video.media.layers import LAYERS_MAX
from sightline.video.rtc.sdp import Codec, Description, LocalSection, SdpError, Section
from sightline.video.rtc.twcc import EXTENSION_URI

FEEDBACK: Final = ("nack", "nack pli", "ccm fir")
"""Feedback messages taken in both directions."""
TRANSPORT_CC: Final = "transport-cc"
REMB: Final = "goog-remb"
MID_URI: Final = "urn:ietf:params:rtp-hdrext:sdes:mid"
RID_URI: Final = "urn:ietf:params:rtp-hdrext:sdes:rtp-stream-id"
REPAIRED_RID_URI: Final = "urn:ietf:params:rtp-hdrext:sdes:repaired-rtp-stream-id"
STREAM_ID_URIS: Final = (MID_URI, RID_URI, REPAIRED_RID_URI)
"""Header extensions by which simulcast streams are told apart (RFC 9143, RFC 8852)."""
VIDEO_NAMES: Final = ("H264", "VP8")
START_KBPS: Final = 1_500
"""Where a publisher begins. By itself libwebrtc begins at 300 kbit/s, and takes 24 s to a picture of 720 lines."""


def _is_usable(codec: Codec) -> bool:
    if codec.name == "VP8":
        return codec.clock_rate == 90_000
    return (
        codec.name == "H264"
        and codec.clock_rate == 90_000
        and codec.parameters.get("packetization-mode", "0") in ("0", "1")
    )


def _answered(codec: Codec, congestion: str | None = None) -> Codec:
    """The codec as our answer has it.

    Args:
        congestion: The congestion feedback that we will send, if it was offered.
    """
    kept = ("profile-level-id", "packetization-mode", "level-asymmetry-allowed", "apt", "minptime", "useinbandfec")
    return Codec(
        payload_type=codec.payload_type,
        name=codec.name,
        clock_rate=codec.clock_rate,
        channels=codec.channels,
        parameters={name: value for name, value in codec.parameters.items() if name in kept},
        feedback=[one for one in (*FEEDBACK, congestion) if one is not None and one in codec.feedback],
    )


def _with_rtx(section: Section, codec: Codec, congestion: str | None = None) -> list[Codec]:
    rtx = section.rtx_of(codec.payload_type)
    return [_answered(codec, congestion), *([_answered(rtx)] if rtx is not None else [])]


def _transport_cc_id(section: Section, codecs: list[Codec]) -> int | None:
    """The header extension id of transport-wide congestion control, if the section offers its feedback too."""
    if not any(TRANSPORT_CC in codec.feedback for codec in codecs):
        return None
    return section.extensions.get(EXTENSION_URI)


def _media(offer: Description, kind: str) -> Section | None:
    found = [section for section in offer.sections if section.kind == kind and section.port]
    if len(found) > 1:
        raise SdpError(f"more than one {kind} m-line")
    return found[0] if found else None


def _refused(section: Section) -> LocalSection:
    return LocalSection(
        kind=section.kind,
        mid=section.mid,
        direction="inactive",
        protocol=section.protocol,
        formats=section.formats,
    )


def _opus(section: Section) -> Codec:
    found = next((codec for codec in section.codecs if codec.name == "OPUS" and codec.clock_rate == 48_000), None)
    if found is None:
        raise SdpError("audio must offer Opus at 48 kHz")
    return found


def _video_codecs(section: Section) -> list[Codec]:
    usable = [codec for codec in section.codecs if _is_usable(codec)]
    if not usable:
        offered = ", ".join(dict.fromkeys(codec.name for codec in section.codecs if codec.name != "RTX"))
        raise SdpError(f"video must offer H.264 (packetization-mode 0 or 1) or VP8, not only {offered or 'nothing'}")
    return usable


def answer_setup(section: Section) -> tuple[str, str]:
    """(our setup attribute, our DTLS role) for an offer's setup; active where the offer leaves the choice."""
    return ("passive", "server") if section.setup == "active" else ("active", "client")


@final
class PublishAgreement(Value, kw_only=True):
    """Result of negotiating with a publisher."""

    sections: tuple[LocalSection, ...]
    plan: IngestPlan


def _choose_publish_codecs(section: Section) -> list[Codec]:
    """One codec per name, in the order of the offer; for H.264 preferably packetization-mode 1.

    Both names are answered because some publishers, such as pion, offer every codec they know and then send the one of
    their file or encoder, whatever comes first.
    """
    usable = _video_codecs(section)
    names = dict.fromkeys(codec.name for codec in usable)
    same = [[codec for codec in usable if codec.name == name] for name in names]
    return [
        next((codec for codec in each if codec.parameters.get("packetization-mode") != "0"), each[0]) for each in same
    ]


def agree_publish(offer: Description, *, bitrate_max_bps: int = 0) -> PublishAgreement:
    """Negotiate with a publisher: its first usable video codec, the first of the other one, and Opus.

    Args:
        bitrate_max_bps: What the publisher may send; 0 means as much as its congestion control allows.

    Raises:
        SdpError: No usable codec or direction; the message says what is required.
    """
    video = _media(offer, "video")
    audio = _media(offer, "audio")
    if video is None:
        raise SdpError("an offer to publish needs a video m-line")
    for section in (video, audio):
        if section is not None and section.direction not in ("sendonly", "sendrecv"):
            raise SdpError("an offer to publish must be sendonly")
    chosen = _choose_publish_codecs(video)
    opus = _opus(audio) if audio is not None else None
    plan = ingest_plan(video, chosen, opus)
    congestion = REMB if plan.transport_cc is None else TRANSPORT_CC
    sections = []
    for section in offer.sections:
        if section is video:
            codecs = [each for codec in chosen for each in _with_rtx(video, codec, congestion)]
            for codec in codecs:
                if codec.name in VIDEO_NAMES:
                    codec.parameters["x-google-start-bitrate"] = str(_start_kbps(bitrate_max_bps))
        elif section is audio and opus is not None:
            codecs = [_answered(opus, congestion)]
        else:
            sections.append(_refused(section))
            continue
        ident = section.extensions.get(EXTENSION_URI)
        extensions = {EXTENSION_URI: ident} if ident is not None and ident == plan.transport_cc else {}
        layers = simulcast_layers(video) if section is video else []
        if layers:
            extensions |= {uri: video.extensions[uri] for uri in STREAM_ID_URIS if uri in video.extensions}
        sections.append(
            LocalSection(
                kind=section.kind,
                mid=section.mid,
                direction="recvonly",
                codecs=codecs,
                extensions=extensions,
                receive_layers=layers,
                bitrate_max_bps=bitrate_max_bps if section is video else 0,
            )
        )
    return PublishAgreement(sections=tuple(sections), plan=plan)


def _start_kbps(bitrate_max_bps: int) -> int:
    return min(START_KBPS, bitrate_max_bps // 1_000) if bitrate_max_bps else START_KBPS


def simulcast_layers(video: Section) -> list[str]:
    """Ids of the streams that a publisher may send at the same time; none if it cannot mark packets with them.

    All that are offered are taken, up to LAYERS_MAX, because a browser stops the layers that are not answered for good.
    """
    layers = [ident for ident in dict.fromkeys(video.send_layers) if ident in video.send_rids]
    return layers[:LAYERS_MAX] if len(layers) > 1 and {MID_URI, RID_URI} <= video.extensions.keys() else []


def ingest_plan(video: Section, chosen: list[Codec], opus: Codec | None) -> IngestPlan:
    """Payload types, retransmission and congestion feedback of an agreed video section."""
    formats: dict[int, PayloadFormat] = {}
    rtx: dict[int, int] = {}
    for codec in chosen:
        formats[codec.payload_type] = _format(codec)
        if (repair := video.rtx_of(codec.payload_type)) is not None:
            rtx[repair.payload_type] = codec.payload_type
    audio = frozenset([opus.payload_type]) if opus is not None else frozenset[int]()
    return IngestPlan(
        video=formats,
        video_rtx=rtx,
        audio=audio,
        rtx_ssrcs=dict(video.fid),
        transport_cc=_transport_cc_id(video, chosen),
        rid=video.extensions.get(RID_URI),
        repaired_rid=video.extensions.get(REPAIRED_RID_URI),
    )


def _format(codec: Codec) -> PayloadFormat:
    if codec.name == "VP8":
        return Vp8Format()
    return H264Format(parameter_sets_of(codec))


def parameter_sets_of(codec: Codec) -> list[bytes]:
    """SPS and PPS in the description (RFC 6184, section 8.2.1)."""
    sets: list[bytes] = []
    for text in codec.parameters.get("sprop-parameter-sets", "").split(","):
        try:
            sets.append(base64.b64decode(text, validate=True))
        except binascii.Error:
            continue
    return [one for one in sets if one]


@final
class PlayAgreement(Value, kw_only=True):
    """Result of negotiating with a viewer."""

    sections: tuple[LocalSection, ...]
    video: dict[str, tuple[int, int | None]]
    """Codec name -> (payload type, retransmission payload type)."""
    audio: int | None
    """Opus payload type."""


def _choose_play_codecs(section: Section, live: str, profile: str | None) -> list[Codec]:
    """One codec per name, the live one first; for H.264 the stream's own profile where it is offered."""
    usable = _video_codecs(section)
    chosen: list[Codec] = []
    for name in (live, *(other for other in VIDEO_NAMES if other != live)):
        same = [codec for codec in usable if codec.name == name]
        mode_1 = [codec for codec in same if name != "H264" or codec.parameters.get("packetization-mode") == "1"]
        matching = [codec for codec in mode_1 if profile is None or codec.profile[:2] == profile[:2]]
        if best := (matching or mode_1 or same):
            chosen.append(best[0])
    if chosen[0].name != live:
        raise SdpError(f"the live stream is {live}, which the offer does not contain")
    return chosen


def agree_play(
    offer: Description, *, live: str, profile: str | None, stream: str, ssrcs: tuple[int, int, int]
) -> PlayAgreement:
    """Negotiate with a viewer.

    Args:
        live: Codec name of the live stream.
        profile: Its H.264 profile-level-id, if known.
        ssrcs: Ours for video, its retransmissions, audio.

    Raises:
        SdpError: The offer cannot receive the live stream.
    """
    video = _media(offer, "video")
    audio = _media(offer, "audio")
    if video is None:
        raise SdpError("an offer to play needs a video m-line")
    for section in (video, audio):
        if section is not None and section.direction not in ("recvonly", "sendrecv"):
            raise SdpError("an offer to play must be recvonly")
    formats: dict[str, tuple[int, int | None]] = {}
    opus: Codec | None = None
    sections = []
    for section in offer.sections:
        if section is video:
            codecs = []
            for codec in _choose_play_codecs(video, live, profile):
                codecs += _with_rtx(video, codec)
                rtx = video.rtx_of(codec.payload_type)
                formats[codec.name] = (codec.payload_type, rtx.payload_type if rtx is not None else None)
            has_rtx = any(rtx is not None for _, rtx in formats.values())
            local = LocalSection(
                kind="video",
                mid=section.mid,
                direction="sendonly",
                codecs=codecs,
                ssrc=ssrcs[0],
                rtx_ssrc=ssrcs[1] if has_rtx else None,
                stream=stream,
            )
        elif section is audio:
            opus = _opus(audio)
            local = LocalSection(
                kind="audio",
                mid=section.mid,
                direction="sendonly",
                codecs=[_answered(opus)],
                ssrc=ssrcs[2],
                stream=stream,
            )
        else:
            local = _refused(section)
        sections.append(local)
    return PlayAgreement(sections=tuple(sections), video=formats, audio=opus.payload_type if opus is not None else None)
