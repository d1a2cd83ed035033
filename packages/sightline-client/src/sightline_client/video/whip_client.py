"""The client's side of WHIP and WHEP over HTTP: POST an offer, take the answer, DELETE at the end."""

import asyncio
from typing import Final, final
from urllib.parse import urljoin

import httpx2
from aiortc import RTCPeerConnection, RTCSessionDescription

HTTP_TIMEOUT_S: Final = 10.0
GATHER_WAIT_S: Final = 3.0


class OfferRefusedError(Exception):
    """The server refused the offer; the message says why."""

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


@final
class OfferClient:
    """One WHIP or WHEP session over HTTP."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._http = httpx2.AsyncClient(timeout=HTTP_TIMEOUT_S, follow_redirects=True)
        self._resource: str | None = None
        self.posted_at_s: float | None = None
        """When the offer went out, on the loop's clock."""

    async def connect(self, peer: RTCPeerConnection) -> None:
        """Send the peer's offer and apply the answer.

        Raises:
            OfferRefusedError: No connection, or not 201.
        """
        await peer.setLocalDescription(await peer.createOffer())
        self.posted_at_s = asyncio.get_running_loop().time()
        try:
            reply = await self._http.post(
                self._url, content=peer.localDescription.sdp, headers={"Content-Type": "application/sdp"}
            )
        except httpx2.HTTPError as error:
            raise OfferRefusedError(f"cannot reach the server: {str(error) or type(error).__name__}") from error
        if reply.status_code != 201:
            after = reply.headers.get("retry-after", "")
            raise OfferRefusedError(
                f"the server answered {reply.status_code}: {_reason(reply)}",
                retry_after_s=float(after) if after.isdigit() else None,
            )
        if "location" in reply.headers:  # go2rtc sends no Location: its sessions end with their media
            self._resource = urljoin(str(reply.url), reply.headers["location"])
        await peer.setRemoteDescription(RTCSessionDescription(sdp=reply.text, type="answer"))

    async def close(self) -> None:
        """End the session on the server, if it can still be reached."""
        resource, self._resource = self._resource, None
        try:
            if resource is not None:
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
