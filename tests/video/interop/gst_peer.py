"""GStreamer's webrtcbin as a WHIP publisher or a WHEP player. Runs on the system's Python, which has its bindings.

Usage: gst_peer.py publish|play URL SECONDS; prints one JSON line.
"""

import json
import re
import sys
import urllib.request

import gi

gi.require_version("Gst", "1.0")
gi.require_version("GstWebRTC", "1.0")
gi.require_version("GstSdp", "1.0")
from gi.repository import GLib, Gst, GstSdp, GstWebRTC  # noqa: E402

PUBLISH = (
    "videotestsrc is-live=true pattern=ball ! video/x-raw,width=640,height=360,framerate=30/1 ! videoconvert ! "
    "x264enc tune=zerolatency speed-preset=ultrafast key-int-max=30 bitrate=1000 ! video/x-h264,profile=baseline ! "
    "h264parse ! rtph264pay config-interval=-1 aggregate-mode=zero-latency pt=96 ! "
    "application/x-rtp,media=video,encoding-name=H264,payload=96 ! webrtcbin name=peer bundle-policy=max-bundle"
)


class Peer:
    """One webrtcbin and its HTTP exchange."""

    def __init__(self, mode: str, url: str) -> None:
        self.url = url
        self.frames = 0
        self.state = "new"
        self.resource = None
        self.loop = GLib.MainLoop()
        if mode == "publish":
            self.pipeline = Gst.parse_launch(PUBLISH)
            self.bin = self.pipeline.get_by_name("peer")
        else:
            self.pipeline = Gst.Pipeline.new("player")
            self.bin = Gst.ElementFactory.make("webrtcbin", "peer")
            self.bin.set_property("bundle-policy", GstWebRTC.WebRTCBundlePolicy.MAX_BUNDLE)
            self.pipeline.add(self.bin)
            caps = Gst.Caps.from_string(
                "application/x-rtp,media=video,encoding-name=H264,payload=96,clock-rate=90000,"
                "packetization-mode=(string)1,profile-level-id=(string)42e01f"
            )
            self.bin.emit("add-transceiver", GstWebRTC.WebRTCRTPTransceiverDirection.RECVONLY, caps)
            self.bin.connect("pad-added", self.on_pad)
        self.bin.connect("on-negotiation-needed", self.on_negotiate)
        self.bin.connect("notify::ice-gathering-state", self.on_gathering)
        self.bin.connect("notify::connection-state", self.on_state)

    def on_negotiate(self, _bin) -> None:
        self.bin.emit("create-offer", None, Gst.Promise.new_with_change_func(self.on_offer))

    def on_offer(self, promise) -> None:
        promise.wait()
        self.reply = promise.get_reply()  # owns the offer: must outlive the call below
        self.bin.emit("set-local-description", self.reply.get_value("offer"), Gst.Promise.new())

    def on_gathering(self, *_args) -> None:
        complete = GstWebRTC.WebRTCICEGatheringState.COMPLETE
        if self.bin.get_property("ice-gathering-state") == complete and self.resource is None:
            self.resource = ""
            GLib.idle_add(self.exchange)

    def exchange(self) -> bool:
        offer = self.bin.get_property("local-description").sdp.as_text()
        request = urllib.request.Request(
            self.url, data=offer.encode(), method="POST", headers={"Content-Type": "application/sdp"}
        )
        with urllib.request.urlopen(request) as reply:
            answer = reply.read().decode()
            self.resource = reply.headers["Location"]
        _, message = GstSdp.SDPMessage.new_from_text(answer)
        description = GstWebRTC.WebRTCSessionDescription.new(GstWebRTC.WebRTCSDPType.ANSWER, message)
        self.bin.emit("set-remote-description", description, Gst.Promise.new())
        return False

    def on_state(self, *_args) -> None:
        self.state = self.bin.get_property("connection-state").value_nick

    def on_pad(self, _bin, pad) -> None:
        if pad.direction != Gst.PadDirection.SRC:
            return
        decode = "avdec_h264 ! videoconvert" if Gst.ElementFactory.find("avdec_h264") else "video/x-h264,alignment=au"
        tail = "fakesink name=sink sync=false signal-handoffs=true"
        sink = Gst.parse_bin_from_description(f"rtph264depay ! h264parse ! {decode} ! {tail}", True)
        sink.get_by_name("sink").connect("handoff", self.on_frame)
        self.pipeline.add(sink)
        sink.sync_state_with_parent()
        pad.link(sink.get_static_pad("sink"))

    def on_frame(self, *_args) -> None:
        self.frames += 1

    def run(self, seconds: float) -> None:
        self.pipeline.set_state(Gst.State.PLAYING)
        GLib.timeout_add(int(seconds * 1000), self.loop.quit)
        self.loop.run()
        if self.resource:
            urllib.request.urlopen(urllib.request.Request(self.resource, method="DELETE"))
        self.pipeline.set_state(Gst.State.NULL)


if __name__ == "__main__":
    Gst.init(None)
    mode, url, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
    assert re.match("https?://", url)
    peer = Peer(mode, url)
    peer.run(seconds)
    report = {"state": peer.state, "frames": peer.frames, "gstreamer": Gst.version_string()}
    sys.stdout.write(json.dumps(report) + "\n")
