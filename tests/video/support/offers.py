"""Offers as real clients send them, and functions that edit them."""

FINGERPRINT = ":".join(["AB"] * 32)

_HEAD = """v=0
o=- 1 2 IN IP4 127.0.0.1
s=-
t=0 0
a=group:BUNDLE 0 1
"""
_TRANSPORT = f"""a=ice-ufrag:abcd
a=ice-pwd:0123456789012345678901
a=fingerprint:sha-256 {FINGERPRINT}
a=setup:actpass
a=rtcp-mux
"""
_AUDIO = """m=audio 9 UDP/TLS/RTP/SAVPF 111
c=IN IP4 0.0.0.0
a=mid:0
a=sendonly
a=rtpmap:111 opus/48000/2
a=fmtp:111 minptime=10;useinbandfec=1
"""
_VIDEO = """m=video 9 UDP/TLS/RTP/SAVPF 96 97
c=IN IP4 0.0.0.0
a=mid:1
a=sendonly
a=rtpmap:96 H264/90000
a=fmtp:96 profile-level-id=42e01f;packetization-mode=1;level-asymmetry-allowed=1
a=rtcp-fb:96 nack
a=rtcp-fb:96 nack pli
a=rtpmap:97 rtx/90000
a=fmtp:97 apt=96
"""


def an_obs_offer(**edits: str) -> bytes:
    """Build an offer to publish without any candidate, as OBS sends it; `edits` replace text (old=new)."""
    text = _HEAD + _AUDIO + _TRANSPORT + _VIDEO + _TRANSPORT
    for old, new in edits.items():
        text = text.replace(old, new)
    return text.replace("\n", "\r\n").encode()


def edited(offer: bytes, *pairs: tuple[str, str]) -> bytes:
    """Replace pieces of text in an offer; each piece must occur."""
    text = offer.decode()
    for old, new in pairs:
        assert old in text, old
        text = text.replace(old, new)
    return text.encode()
