// What the interop page runs: plain RTCPeerConnection, sightline-js, @eyevinn/whip-web-client and @eyevinn/webrtc-player.
import { WHIPClient } from "@eyevinn/whip-web-client";
import { WebRTCPlayer } from "@eyevinn/webrtc-player";
import { Player } from "sightline-js/player.ts";
import { Publisher } from "sightline-js/publisher.ts";

const camera = () => navigator.mediaDevices.getUserMedia({ video: { width: 1280, height: 720 }, audio: true });

function preferring(peer, codec) {
  for (const transceiver of peer.getTransceivers()) {
    if (transceiver.sender.track?.kind === "video" || transceiver.receiver.track.kind === "video") {
      const known = RTCRtpReceiver.getCapabilities("video").codecs;
      const wanted = known.filter((one) => one.mimeType === codec || one.mimeType === "video/rtx");
      if (wanted.some((one) => one.mimeType === codec)) transceiver.setCodecPreferences(wanted);
    }
  }
}

async function exchange(peer, url) {
  await peer.setLocalDescription();
  const reply = await fetch(url, {
    method: "POST",
    headers: { "Content-Type": "application/sdp" },
    body: peer.localDescription.sdp,
  });
  if (reply.status !== 201) throw new Error(`${reply.status} ${await reply.text()}`);
  await peer.setRemoteDescription({ type: "answer", sdp: await reply.text() });
  return reply.headers.get("location");
}

window.publishPlain = async (url, codec, maxBitrate) => {
  const peer = (window.peer = new RTCPeerConnection());
  for (const track of (await camera()).getTracks()) {
    const sendEncodings = track.kind === "video" && maxBitrate ? [{ maxBitrate }] : undefined;
    peer.addTransceiver(track, { direction: "sendonly", ...(sendEncodings && { sendEncodings }) });
  }
  preferring(peer, codec);
  window.resource = await exchange(peer, url);
  return window.resource;
};

// Three layers, the lowest first, as most pages order them.
window.publishLayers = async (url, codec) => {
  const peer = (window.peer = new RTCPeerConnection());
  const [track] = (await camera()).getVideoTracks();
  track.contentHint = "detail"; // a busy machine lowers the frame rate, not the size
  const sendEncodings = [
    { rid: "q", scaleResolutionDownBy: 4, maxBitrate: 150_000 },
    { rid: "h", scaleResolutionDownBy: 2, maxBitrate: 500_000 },
    { rid: "f", maxBitrate: 2_500_000 },
  ];
  peer.addTransceiver(track, { direction: "sendonly", sendEncodings });
  preferring(peer, codec);
  await exchange(peer, url);
  return peer.getSenders()[0].getParameters().encodings.map((each) => each.rid);
};
window.switchLayer = async (rid, active) => {
  const [sender] = window.peer.getSenders();
  const parameters = sender.getParameters();
  parameters.encodings.find((each) => each.rid === rid).active = active;
  await sender.setParameters(parameters);
};

window.playPlain = async (url) => {
  const peer = (window.peer = new RTCPeerConnection());
  const video = document.querySelector("video");
  const stream = new MediaStream();
  peer.ontrack = (event) => stream.addTrack(event.track);
  peer.addTransceiver("video", { direction: "recvonly" });
  peer.addTransceiver("audio", { direction: "recvonly" });
  window.resource = await exchange(peer, url);
  video.srcObject = stream;
  await video.play();
  return window.resource;
};

// sightline-js connects in the background: `whenConnected` waits for its connection.
window.publishOurs = async (url) => {
  window.ours = new Publisher(url, await camera());
};
window.playOurs = (url) => {
  window.ours = new Player(document.querySelector("video"), url);
};
window.whenConnected = async () => {
  while (window.ours.current?.peer.connectionState !== "connected") await new Promise((done) => setTimeout(done, 50));
  window.peer = window.ours.current.peer;
};
/** Wait until the first exchange has been given up for another one. */
window.anotherExchange = async () => {
  const seen = new Set();
  while (seen.size < 2) {
    if (window.ours.current) seen.add(window.ours.current);
    await new Promise((done) => setTimeout(done, 20));
  }
};
/** Publish and play in one page; gives both paths after ten decoded frames. */
window.publishAndPlay = async (whip, whep) => {
  await window.publishOurs(whip);
  await window.whenConnected();
  const published = await window.path();
  window.playOurs(whep);
  await window.whenConnected();
  while (!((await window.stats())["inbound-rtp video"]?.framesDecoded >= 10)) await new Promise((done) => setTimeout(done, 100));
  return { published, played: await window.path() };
};
/** The candidates between which media flows. */
window.path = async () => {
  const stats = await window.peer.getStats();
  const transport = [...stats.values()].find((each) => each.type === "transport");
  // Firefox has no statistics of the transport, and marks the pair.
  const pair = transport ? stats.get(transport.selectedCandidatePairId) : [...stats.values()].find((each) => each.selected);
  const { localCandidateId, remoteCandidateId } = pair;
  return { local: stats.get(localCandidateId), remote: stats.get(remoteCandidateId) };
};

window.publishEyevinn = async (url) => {
  window.whip = new WHIPClient({ endpoint: url, opts: { debug: false, iceServers: [], authkey: "unused" } });
  await window.whip.setIceServersFromEndpoint();
  await window.whip.ingest(await camera());
  return await window.whip.getResourceUrl();
};

window.playEyevinn = async (url) => {
  const video = document.querySelector("video");
  window.player = new WebRTCPlayer({ video, type: "whep", iceServers: [], statsTypeFilter: "^inbound-rtp" });
  await window.player.load(new URL(url));
  await video.play();
  return "loaded";
};

window.watched = async () => {
  const video = document.querySelector("video");
  const quality = video.getVideoPlaybackQuality();
  return { width: video.videoWidth, height: video.videoHeight, time: video.currentTime, frames: quality.totalVideoFrames };
};

window.stats = async () => {
  const found = {};
  for (const report of (await window.peer.getStats()).values()) {
    if (report.type === "inbound-rtp" || report.type === "outbound-rtp") found[`${report.type} ${report.kind}`] = report;
  }
  return found;
};
