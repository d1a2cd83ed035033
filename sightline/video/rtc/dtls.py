"""DTLS and SRTP of one peer on top of its ICE agent: aiortc's, with our cipher list and the reason of a failure.

Uses private names of aiortc; see `ice`.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, final

import pylibsrtp
from aiortc import RTCCertificate, RTCDtlsTransport, RTCIceGatherer, RTCIceTransport
from aiortc.rtcdtlstransport import RTCDtlsFingerprint, RTCDtlsParameters
from aiortc.rtcicetransport import RTCIceParameters
from OpenSSL import SSL
from typing_extensions import override

from sightline.video.rtc.ice import IceConnection
from sightline.video.rtc.srtp import protect, protect_frame
from sightline.video.rtc.udp import Run

CIPHERS: Final = b":".join(
    f"ECDHE-{kind}-{cipher}".encode()
    for cipher in ("AES128-GCM-SHA256", "AES256-GCM-SHA384", "CHACHA20-POLY1305")
    for kind in ("ECDSA", "RSA")
)
"""AEAD suites only. aiortc offers the ECDSA half only, and GStreamer's certificates are RSA: no shared cipher when we
are the client."""
ALERTS: Final = {
    10: "unexpected message",
    20: "bad record MAC",
    40: "handshake failure",
    42: "bad certificate",
    43: "unsupported certificate",
    46: "certificate unknown",
    47: "illegal parameter, such as a certificate on an unsupported curve",
    48: "unknown CA",
    51: "decrypt error",
    70: "protocol version",
    71: "insufficient security",
    80: "internal error",
}


@final
class Certificate(RTCCertificate):
    """aiortc's certificate with our cipher list."""

    @override
    def _create_ssl_context(self, srtp_profiles: list[Any]) -> Any:
        context = super()._create_ssl_context(srtp_profiles=srtp_profiles)
        context.set_cipher_list(CIPHERS)
        context.set_info_callback(_note_alert)
        return context


def _note_alert(connection: SSL.Connection, where: int, value: int) -> None:
    """Keep the newest DTLS alert: aiortc reads and drops the error that it causes."""
    if where & SSL.SSL_CB_ALERT:
        sender = "the peer" if where & SSL.SSL_CB_READ else "this server"
        code = value & 0xFF
        connection.set_app_data(f"{sender} sent alert {code} ({ALERTS.get(code, 'see RFC 8446, section 6')})")


@final
class _DtlsTransport(RTCDtlsTransport):
    """aiortc's DTLS transport with the reason of a failed handshake, which aiortc logs but does not return."""

    failure: str | None = None

    @override
    async def _do_handshake(self) -> None:
        connection: Any = self._ssl
        try:
            while not self.encrypted:
                try:
                    connection.do_handshake()
                except SSL.WantReadError:
                    await self._write_ssl()
                    await self._recv_next()
                else:
                    self.encrypted = True
        except SSL.Error as error:
            await self._write_ssl()  # the alert that tells the peer
            text = ", ".join(str(part) for entry in error.args[0] for part in entry if part)
            self._fail(", ".join(part for part in (connection.get_app_data(), text) if part) or repr(error))
        except ConnectionError:
            self._fail("the peer left during the handshake")

    @override
    def _validate_peer_identity(self, remoteParameters: RTCDtlsParameters) -> None:
        super()._validate_peer_identity(remoteParameters)
        if self.state == "failed":
            self.failure = "the certificate's fingerprint is not the one in the session description"

    @override
    def _setup_srtp(self) -> None:
        super()._setup_srtp()
        if self.state == "failed":
            self.failure = "no SRTP profile in common"

    def _fail(self, reason: str) -> None:
        self.failure = reason
        self._set_state(type(self._state).FAILED)


@final
class RtcTransport:
    """One ICE and DTLS transport with its private handles gathered in one place."""

    def __init__(self, connection: IceConnection, certificate: RTCCertificate) -> None:
        gatherer = RTCIceGatherer(iceServers=[])
        gatherer._connection = connection
        self.connection = connection
        self._gatherer = gatherer
        self._ice = RTCIceTransport(gatherer)
        self._dtls = _DtlsTransport(self._ice, [certificate])

    @property
    def state(self) -> str:
        """new, connecting, connected, closed or failed."""
        return str(self._dtls.state)

    @property
    def failure(self) -> str:
        """The reason why the transport is not connected, for the log."""
        if self._ice.state != "completed":
            return f"ICE is {self._ice.state}: no connectivity check was answered"
        if self._dtls.failure is not None:
            return f"DTLS handshake failed: {self._dtls.failure}"
        return f"DTLS is {self.state}"

    def on_state_change(self, callback: Callable[[], None]) -> None:
        """Call back at every change of the DTLS state."""
        self._dtls.on("statechange", callback)

    async def gather(self) -> None:
        """Bind the sockets."""
        await self._gatherer.gather()

    async def start(
        self, *, ufrag: str, password: str, ice_lite: bool, fingerprints: list[tuple[str, str]], role: str
    ) -> None:
        """Run ICE, then DTLS in the given role (client or server); look at `state` afterwards."""
        self._dtls._set_role(role)
        await self._ice.start(RTCIceParameters(usernameFragment=ufrag, password=password, iceLite=ice_lite))
        if self._ice.state == "completed":
            known = [RTCDtlsFingerprint(algorithm=name, value=digest) for name, digest in fingerprints]
            await self._dtls.start(RTCDtlsParameters(fingerprints=known, role=role))

    async def stop(self) -> None:
        """Send the DTLS alert and close the sockets."""
        await self._dtls.stop()
        await self._ice.stop()

    def unprotect(self, data: bytes, *, rtcp: bool) -> bytes | None:
        """Decrypt a packet; None if it is not authentic."""
        try:
            session = self._dtls._rx_srtp
            return bytes(session.unprotect_rtcp(data) if rtcp else session.unprotect(data))
        except pylibsrtp.Error:
            return None

    def protect(self, data: bytes, *, rtcp: bool) -> bytes:
        """Encrypt a packet for the wire."""
        session = self._dtls._tx_srtp
        return bytes(session.protect_rtcp(data)) if rtcp else protect(session, data)

    def protect_frame(
        self, payloads: Sequence[bytes], *, payload_type: int, sequence: int, timestamp: int, ssrc: int
    ) -> list[Run]:
        """Make and encrypt the RTP packets of a frame, see `srtp.protect_frame`."""
        return protect_frame(
            self._dtls._tx_srtp, payloads, payload_type=payload_type, sequence=sequence, timestamp=timestamp, ssrc=ssrc
        )
