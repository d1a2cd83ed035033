"""One WebRTC peer: SDP, ICE, DTLS-SRTP and RTP packets, on the transports of aiortc and aioice."""
