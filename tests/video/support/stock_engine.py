"""An engine on unmodified aiortc that answers WHEP offers with the clip, to test the reader with another stack.

Usage: python -m tests.video.support.stock_engine; prints its port, exits when stdin closes.
"""

import asyncio
import sys

from aiohttp import web
from aiortc import RTCConfiguration, RTCPeerConnection, RTCRtpSender, RTCSessionDescription

from sightline_client.video.assets import clip_path
from sightline_client.video.publish import FileTrack
from sightline_client.video.stock_peers import tune_stock_peers

peers: set[RTCPeerConnection] = set()


async def play(request: web.Request) -> web.Response:
    """Answer POST /{name}/whep."""
    if request.headers.get("Authorization") != "Bearer stock":
        return web.Response(status=401)
    peer = RTCPeerConnection(RTCConfiguration(iceServers=[]))
    peers.add(peer)
    offer = RTCSessionDescription(sdp=await request.text(), type="offer")
    await peer.setRemoteDescription(offer)
    for transceiver in peer.getTransceivers():
        if transceiver.kind == "video":
            known = RTCRtpSender.getCapabilities("video").codecs
            transceiver.setCodecPreferences([one for one in known if one.mimeType in ("video/H264", "video/rtx")])
    peer.addTrack(FileTrack(clip_path()))
    await peer.setRemoteDescription(offer)
    await peer.setLocalDescription(await peer.createAnswer())
    headers = {"Location": f"{request.path}/{id(peer)}", "Content-Type": "application/sdp"}
    return web.Response(status=201, text=peer.localDescription.sdp, headers=headers)


async def stop(request: web.Request) -> web.Response:
    """Answer DELETE of a session."""
    for peer in list(peers):
        if str(id(peer)) == request.match_info["peer"]:
            peers.discard(peer)
            await peer.close()
    return web.Response(status=200)


async def main() -> None:
    """Serve until stdin closes."""
    tune_stock_peers()
    app = web.Application()
    app.add_routes([web.post("/{name}/whep", play), web.delete("/{name}/whep/{peer}", stop)])
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    sys.stdout.write(f"{runner.addresses[0][1]}\n")
    sys.stdout.flush()
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    for peer in peers:
        await peer.close()
    await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(main())
