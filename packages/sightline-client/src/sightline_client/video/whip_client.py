"""The client's side of WHIP and WHEP over HTTP: OPTIONS for the ICE servers, POST an offer, take the answer, DELETE at
the end."""

import asyncio
import re
from contextlib import suppress
from typing import Final, final
from urllib.parse import urljoin

import httpx2
from aiortc import RTCConfiguration, RTCIceServer, RTCPeerConnection, RTCSessionDescription
from aiortc.rtcicetransport import parse_stun_turn_uri

from sightline_client.video.route import Route

HTTP_TIMEOUT_S: Final = 10.0
_VALUE: Final = r'(?:"(?:[^"\\]|\\.)*"|[^",;\s]+)'
_LINK: Final = re.compile(rf"<([^>]*)>((?:\s*;\s*[\w-]+\s*=\s*{_VALUE})*)")
_PARAMETER: Final = re.compile(rf"([\w-]+)\s*=\s*({_VALUE})")


TERMINATED: Final = '{"error":"terminated"}'


class OfferRefusedError(Exception):
    """The server refused the offer; the message says why."""

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        retry_after_s: float | None = None,
        is_terminated: bool = False,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after_s = retry_after_s
        self.is_terminated = is_terminated
        """MediaMTX ended the publication while it began, as it now and then does. Another one is taken."""


def ice_servers_of(link: str) -> list[RTCIceServer]:
    """The STUN and TURN servers of a Link header (RFC 9725, section 4.6).

    aioice uses the first STUN and the first TURN server. A relay is needed where UDP is blocked, so TURN over TLS is
    first, then TURN over TCP. Servers that aioice cannot use, and TURN servers without credentials, are left out.
    """
    found: list[tuple[int, RTCIceServer]] = []
    for url, rest in _LINK.findall(link):
        fields = {name.lower(): _unquoted(value) for name, value in _PARAMETER.findall(rest)}
        if fields.get("rel") != "ice-server":
            continue
        with suppress(ValueError):
            parsed = parse_stun_turn_uri(url)
            is_turn = parsed["scheme"] in ("turn", "turns")
            if is_turn and not ("username" in fields and "credential" in fields):
                continue
            rank = ("turns", "turn").index(parsed["scheme"]) if is_turn and parsed["transport"] == "tcp" else 2
            server = RTCIceServer(urls=url, username=fields.get("username"), credential=fields.get("credential"))
            found.append((rank, server))
    return [server for _, server in sorted(found, key=lambda pair: pair[0])]


def _unquoted(value: str) -> str:
    return re.sub(r"\\(.)", r"\1", value[1:-1]) if value.startswith('"') else value


@final
class OfferClient:
    """One WHIP or WHEP session over HTTP."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._http = httpx2.AsyncClient(timeout=HTTP_TIMEOUT_S, follow_redirects=True)
        self._resource: str | None = None
        self.route: Route | None = None
        """How the server was reached."""
        self.posted_at_s: float | None = None
        """When the offer went out, on the loop's clock."""

    async def new_peer(self) -> RTCPeerConnection:
        """A peer with the ICE servers that the server names in its answer to OPTIONS.

        Raises:
            OfferRefusedError: No connection.
        """
        reply = await self._reach("OPTIONS", {})
        servers = ice_servers_of(", ".join(reply.headers.get_list("link"))) if reply.is_success else []
        return RTCPeerConnection(RTCConfiguration(iceServers=servers))

    async def _reach(self, method: str, headers: dict[str, str], body: str | None = None) -> httpx2.Response:
        try:
            async with self._http.stream(method, self._url, content=body, headers=headers) as reply:
                socket = reply.extensions["network_stream"]  # may be closed once the body is read
                ends = (socket.get_extra_info(name) for name in ("client_addr", "server_addr"))
                self.route = Route(*(str(end[0]) for end in ends))
                await reply.aread()
                return reply
        except httpx2.HTTPError as error:
            raise OfferRefusedError(f"cannot reach the server: {str(error) or type(error).__name__}") from error

    async def connect(self, peer: RTCPeerConnection) -> None:
        """Send the peer's offer and apply the answer.

        Raises:
            OfferRefusedError: No connection, or not 201.
        """
        await peer.setLocalDescription(await peer.createOffer())
        self.posted_at_s = asyncio.get_running_loop().time()
        reply = await self._reach("POST", {"Content-Type": "application/sdp"}, peer.localDescription.sdp)
        if reply.status_code != 201:
            after = reply.headers.get("retry-after", "")
            raise OfferRefusedError(
                f"the server answered {reply.status_code}: {_reason(reply)}",
                status=reply.status_code,
                retry_after_s=float(after) if after.isdigit() else None,
                is_terminated=reply.status_code == 400 and reply.text == TERMINATED,
            )
        if "location" in reply.headers:  # go2rtc sends no Location: its sessions end with their media
            self._resource = urljoin(str(reply.url), reply.headers["location"])
        await peer.setRemoteDescription(RTCSessionDescription(sdp=reply.text, type="answer"))

    @property
    def is_cut_off(self) -> bool:
        """Whether this machine has lost the address from which the offer was sent."""
        return self.route is not None and self.route.is_gone

    async def close(self) -> None:
        """End the session on the server, if it can still be reached.

        A client that was cut off connects again, which ends its old session.
        """
        resource, self._resource = self._resource, None
        try:
            if resource is not None and not self.is_cut_off:
                await self._http.delete(resource)
        except httpx2.HTTPError:
            pass  # the server detects it by timeout
        finally:
            await self._http.aclose()


def _reason(reply: httpx2.Response) -> str:
    try:
        body = reply.json()
    except ValueError:
        return reply.text[:200] or reply.reason_phrase
    if not isinstance(body, dict):
        return reply.text[:200]
    return ": ".join(str(body[key]) for key in ("title", "message", "detail") if key in body) or reply.text[:200]
