"""Session descriptions: parser for offers and answers of clients, and writer.

Our own parser, because offers are untrusted: each fault is an `SdpError` with a message for the client, never an
assertion. Source: RFC 8866 (SDP), RFC 8839 (ICE in SDP), RFC 8829 (JSEP), RFC 9725 section 4.4.
"""

from collections.abc import Mapping, Sequence
from typing import Final, final

from msgspec import Struct, field

from sightline.domain.value import Value, hiding

MAX_BYTES: Final = 64 * 1024
RID_MAX_CHARACTERS: Final = 64
DIRECTIONS: Final = ("sendrecv", "sendonly", "recvonly", "inactive")


class SdpError(ValueError):
    """The description cannot be used; the message is for the client."""


@final
class Codec(Struct, kw_only=True):
    """One payload type of a section."""

    payload_type: int
    name: str
    """Upper case."""
    clock_rate: int
    channels: int = 1
    parameters: dict[str, str] = field(default_factory=dict)
    feedback: list[str] = field(default_factory=list)

    @property
    def profile(self) -> str:
        """profile-level-id in lower case; without one, constrained baseline 3.1 (RFC 6184, section 8.1)."""
        return self.parameters.get("profile-level-id", "42e01f").lower()


@final
class Section(Struct, kw_only=True):
    """One m-line."""

    kind: str
    port: int
    protocol: str
    formats: list[str]
    mid: str = ""
    direction: str = "sendrecv"
    codecs: list[Codec] = field(default_factory=list)
    feedback: list[str] = field(default_factory=list)
    """Feedback of every codec (a=rtcp-fb:*)."""
    ssrcs: list[int] = field(default_factory=list)
    fid: dict[int, int] = field(default_factory=dict)
    """Retransmission SSRC -> media SSRC."""
    ufrag: str = ""
    password: str = ""
    fingerprints: list[tuple[str, str]] = field(default_factory=list)
    setup: str = ""
    candidates: list[str] = field(default_factory=list)
    rtcp_mux: bool = False
    extensions: dict[str, int] = field(default_factory=dict)
    """Header extensions: URI -> id, one-byte ids only."""
    send_rids: list[str] = field(default_factory=list)
    """Streams with an id that the other side can send (a=rid, RFC 8851)."""
    send_layers: list[str] = field(default_factory=list)
    """Ids of the streams that it wants to send at the same time (a=simulcast, RFC 8853), in its order."""

    __repr__ = hiding("password")

    def rtx_of(self, payload_type: int) -> Codec | None:
        """The retransmission format of a payload type."""
        wanted = str(payload_type)
        return next((c for c in self.codecs if c.name == "RTX" and c.parameters.get("apt") == wanted), None)


@final
class Description(Struct, kw_only=True):
    """A whole offer or answer."""

    sections: list[Section]
    bundle: list[str]
    ice_lite: bool = False


def _parameters(text: str) -> dict[str, str]:
    pairs = (part.strip().partition("=") for part in text.split(";"))
    return {name.lower(): value for name, _, value in pairs if name}


def _number(text: str, most: int) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 10 or int(text) > most:
        raise SdpError(f"not a number between 0 and {most}: {text[:20]!r}")
    return int(text)


def _apply_codec_line(section: Section, name: str, value: str) -> None:
    head, _, rest = value.partition(" ")
    if name == "rtcp-fb" and head == "*":
        section.feedback.append(rest.strip())
        return
    payload_type = _number(head, 127)
    codec = next((c for c in section.codecs if c.payload_type == payload_type), None)
    if name == "rtpmap" and codec is None:
        encoding = rest.strip().split("/")
        if len(encoding) < 2:
            raise SdpError("rtpmap without a clock rate")
        channels = _number(encoding[2], 255) if len(encoding) > 2 else 1
        section.codecs.append(
            Codec(
                payload_type=payload_type,
                name=encoding[0].upper(),
                clock_rate=_number(encoding[1], 10_000_000),
                channels=channels,
            )
        )
    elif codec is not None and name == "fmtp":
        codec.parameters.update(_parameters(rest))
    elif codec is not None and name == "rtcp-fb":
        codec.feedback.append(rest.strip())


def _is_rid(text: str) -> bool:
    return 0 < len(text) <= RID_MAX_CHARACTERS and text.isascii() and text.replace("-", "").replace("_", "").isalnum()


def _layer_ids(text: str) -> list[str]:
    """The first alternative of each stream of a=simulcast, paused (~) or not."""
    first = [stream.partition(",")[0].removeprefix("~") for stream in text.split(";")]
    return [ident for ident in first if _is_rid(ident)]


_TEXT_FIELDS: Final = {"mid": "mid", "ice-ufrag": "ufrag", "ice-pwd": "password", "setup": "setup"}


def _apply_line(section: Section, name: str, value: str) -> None:
    if name in ("rtpmap", "fmtp", "rtcp-fb"):
        _apply_codec_line(section, name, value)
    elif name in _TEXT_FIELDS:
        setattr(section, _TEXT_FIELDS[name], value)
    elif name in DIRECTIONS:
        section.direction = name
    elif name == "rtcp-mux":
        section.rtcp_mux = True
    elif name == "rid":
        ident, _, rest = value.partition(" ")
        if rest.split()[:1] == ["send"] and _is_rid(ident):
            section.send_rids.append(ident)
    elif name == "simulcast":
        words = value.split()
        if "send" in words[:-1]:
            section.send_layers = _layer_ids(words[words.index("send") + 1])
    elif name == "extmap":
        ident, _, uri = value.partition(" ")
        number = ident.partition("/")[0]
        if number.isascii() and number.isdigit() and len(number) <= 2 and 1 <= int(number) <= 14:
            section.extensions[uri.split(" ")[0]] = int(number)
    elif name == "fingerprint":
        algorithm, _, digest = value.partition(" ")
        section.fingerprints.append((algorithm.lower(), digest.strip()))
    elif name == "candidate":
        section.candidates.append(value)
    elif name == "ssrc":
        ssrc = _number(value.partition(" ")[0], 0xFFFFFFFF)
        if ssrc not in section.ssrcs:
            section.ssrcs.append(ssrc)
    elif name == "ssrc-group" and value.startswith("FID "):
        numbers = [_number(item, 0xFFFFFFFF) for item in value.split()[1:]]
        if len(numbers) == 2:
            section.fid[numbers[1]] = numbers[0]


def parse(body: bytes) -> Description:
    """Read a description.

    Raises:
        SdpError: It is malformed, or lacks an attribute that WebRTC requires.
    """
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise SdpError("the body is not UTF-8 text") from error
    if len(body) > MAX_BYTES or not text.startswith("v=0"):
        raise SdpError("the body is not a session description")
    session: list[tuple[str, str]] = []
    result = Description(sections=[], bundle=[])
    for raw in text.splitlines():
        line = raw.strip()
        if line.startswith("m="):
            words = line[2:].split()
            if len(words) < 4:
                raise SdpError("malformed m-line")
            port = _number(words[1].partition("/")[0], 65535)
            section = Section(kind=words[0], port=port, protocol=words[2], formats=words[3:])
            result.sections.append(section)
            for name, value in session:
                _apply_line(section, name, value)
        elif line.startswith("a="):
            name, _, value = line[2:].partition(":")
            if result.sections:
                _apply_line(result.sections[-1], name, value.strip())
            elif name == "group" and value.startswith("BUNDLE"):
                result.bundle = value.split()[1:]
            elif name == "ice-lite":
                result.ice_lite = True
            elif name in ("ice-ufrag", "ice-pwd", "fingerprint", "setup", *DIRECTIONS):
                session.append((name, value.strip()))
    _check(result)
    return result


def _check(description: Description) -> None:
    media = [section for section in description.sections if section.kind in ("audio", "video")]
    if not media:
        raise SdpError("the description has neither audio nor video")
    for section in media:
        if not section.ufrag or not section.password:
            raise SdpError("ice-ufrag or ice-pwd is missing")
        if not section.fingerprints:
            raise SdpError("the DTLS fingerprint is missing")
        for codec in section.codecs:
            codec.feedback += section.feedback
        section.codecs.sort(key=lambda codec: _rank(section.formats, codec.payload_type))


def _rank(formats: list[str], payload_type: int) -> int:
    text = str(payload_type)
    return formats.index(text) if text in formats else len(formats)


@final
class LocalTransport(Value, kw_only=True):
    """Our side of the bundled transport."""

    ufrag: str
    password: str
    fingerprint: str
    """SHA-256, colon separated, upper case."""
    setup: str
    candidates: tuple[str, ...]
    """candidate lines without the attribute name, best first."""

    __repr__ = hiding("password")


@final
class LocalSection(Value, kw_only=True):
    """One m-line of ours; `codecs` empty means refused."""

    kind: str
    mid: str
    direction: str
    codecs: Sequence[Codec] = ()
    ssrc: int | None = None
    rtx_ssrc: int | None = None
    stream: str = ""
    protocol: str = "UDP/TLS/RTP/SAVPF"
    formats: Sequence[str] = ()
    extensions: Mapping[str, int] = field(default_factory=dict)
    """Header extensions: URI -> id."""
    bitrate_max_bps: int = 0
    """What the other side may send here; 0 means as much as its congestion control allows."""
    receive_layers: Sequence[str] = ()
    """Ids of the streams that the other side may send at the same time (RFC 8853)."""


def _codec_lines(codec: Codec) -> list[str]:
    channels = f"/{codec.channels}" if codec.channels > 1 else ""
    name = "rtx" if codec.name == "RTX" else "opus" if codec.name == "OPUS" else codec.name
    lines = [f"a=rtpmap:{codec.payload_type} {name}/{codec.clock_rate}{channels}"]
    lines += [f"a=rtcp-fb:{codec.payload_type} {feedback}" for feedback in codec.feedback]
    if codec.parameters:
        fmtp = ";".join(f"{k}={v}" if v else k for k, v in codec.parameters.items())
        lines.append(f"a=fmtp:{codec.payload_type} {fmtp}")
    return lines


def _section_lines(section: LocalSection, transport: LocalTransport, *, first: bool) -> list[str]:
    if not section.codecs:
        return [
            f"m={section.kind} 0 {section.protocol} {' '.join(section.formats) or '0'}",
            "c=IN IP4 0.0.0.0",
            "a=inactive",
            f"a=mid:{section.mid}",
        ]
    formats = " ".join(str(codec.payload_type) for codec in section.codecs)
    lines = [f"m={section.kind} 9 {section.protocol} {formats}", "c=IN IP4 0.0.0.0"]
    if section.bitrate_max_bps:
        lines += [f"b=AS:{max(1, section.bitrate_max_bps // 1000)}", f"b=TIAS:{section.bitrate_max_bps}"]
    lines += [f"a={section.direction}", f"a=mid:{section.mid}", "a=rtcp-mux", "a=rtcp-mux-only"]
    lines += [f"a=extmap:{ident} {uri}" for uri, ident in section.extensions.items()]
    for codec in section.codecs:
        lines += _codec_lines(codec)
    if section.receive_layers:
        lines += [f"a=rid:{ident} recv" for ident in section.receive_layers]
        lines.append(f"a=simulcast:recv {';'.join(section.receive_layers)}")
    if section.ssrc is not None:
        lines.append(f"a=msid:{section.stream} {section.kind}")
        if section.rtx_ssrc is not None:
            lines.append(f"a=ssrc-group:FID {section.ssrc} {section.rtx_ssrc}")
        lines.append(f"a=ssrc:{section.ssrc} cname:{section.stream}")
        if section.rtx_ssrc is not None:  # after the media SSRC: aiortc uses the order, not the group
            lines.append(f"a=ssrc:{section.rtx_ssrc} cname:{section.stream}")
    lines += [f"a=ice-ufrag:{transport.ufrag}", f"a=ice-pwd:{transport.password}"]
    lines += [f"a=fingerprint:sha-256 {transport.fingerprint}", f"a=setup:{transport.setup}"]
    return [*lines, *_candidate_lines(transport)] if first else lines


def _candidate_lines(transport: LocalTransport) -> list[str]:
    return [*(f"a=candidate:{candidate}" for candidate in transport.candidates), "a=end-of-candidates"]


def build(
    sections: Sequence[LocalSection], transport: LocalTransport, *, session_number: int, bundled: bool = True
) -> bytes:
    """Write a description with everything on one transport; candidates stand in the first taken section.

    Args:
        bundled: False for the answer to an offer without a=group:BUNDLE (one m-line).
    """
    bundle = " ".join(section.mid for section in sections if section.codecs)
    lines = ["v=0", f"o=- {session_number} 1 IN IP4 0.0.0.0", "s=-", "t=0 0"]
    if bundled:
        lines.append(f"a=group:BUNDLE {bundle}")
    lines += ["a=msid-semantic: WMS *", "a=ice-options:trickle"]
    first = True
    for section in sections:
        lines += _section_lines(section, transport, first=first and bool(section.codecs))
        first = first and not section.codecs
    return ("\r\n".join(lines) + "\r\n").encode()


def build_fragment(mid: str, kind: str, transport: LocalTransport) -> bytes:
    """Write credentials and candidates alone (RFC 8840, section 9).

    Args:
        mid: Of the m-line that carries the bundled transport, as its kind.
    """
    lines = ["a=ice-options:trickle", f"m={kind} 9 RTP/AVP 0", f"a=mid:{mid}"]
    lines += [f"a=ice-ufrag:{transport.ufrag}", f"a=ice-pwd:{transport.password}", *_candidate_lines(transport)]
    return ("\r\n".join(lines) + "\r\n").encode()
