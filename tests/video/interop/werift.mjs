// Publishes by WHIP and plays by WHEP with werift, WebRTC in TypeScript. The result is one JSON object on stdout.
//
//   node werift.mjs publish URL FILE.h264 SECONDS
//   node werift.mjs play URL SECONDS
//   node werift.mjs offer URL CODEC         the status and body of the answer to an offer of one codec
import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import {
  H264Packetizer,
  H264RtpPayload,
  MediaStreamTrack,
  RTCPeerConnection,
  splitH264NalUnits,
  useAV1X,
  useH264,
  useTWCC,
  useVP9,
} from "werift";

const START_CODE = Buffer.from([0, 0, 0, 1]);
const CODECS = { H264: useH264, VP9: useVP9, AV1: useAV1X };

function newPeer(codec) {
  const feedback = [{ type: "nack" }, { type: "nack", parameter: "pli" }, { type: "transport-cc" }];
  const video = [CODECS[codec]({ rtcpFeedback: feedback })];
  return new RTCPeerConnection({ codecs: { video, audio: [] }, headerExtensions: { video: [useTWCC()] } });
}

async function post(peer, url) {
  await peer.setLocalDescription(await peer.createOffer());
  if (peer.iceGatheringState !== "complete") {
    await peer.iceGatheringStateChange.watch((state) => state === "complete", 5000);
  }
  const headers = { "Content-Type": "application/sdp" };
  return fetch(url, { method: "POST", headers, body: peer.localDescription.sdp });
}

async function connect(peer, url) {
  const connected = peer.connectionStateChange.watch((state) => state === "connected", 10000);
  const reply = await post(peer, url);
  if (reply.status !== 201) throw new Error(`${reply.status}: ${await reply.text()}`);
  await peer.setRemoteDescription({ type: "answer", sdp: await reply.text() });
  await connected;
  return new URL(reply.headers.get("location"), url);
}

async function leave(peer, resource) {
  const state = peer.connectionState;
  const reply = await fetch(resource, { method: "DELETE" });
  await peer.close();
  return { state, deleted: reply.status };
}

// Access units of an Annex B file: parameter sets with the picture that follows them.
function accessUnits(file) {
  const units = [];
  let unit = [];
  let hasSlice = false;
  for (const nal of splitH264NalUnits(readFileSync(file))) {
    const isSlice = [1, 5].includes(nal[0] & 0x1f);
    if (hasSlice && (!isSlice || nal[1] & 0x80)) {
      units.push(Buffer.concat(unit));
      unit = [];
      hasSlice = false;
    }
    unit.push(START_CODE, nal);
    hasSlice ||= isSlice;
  }
  return units;
}

async function publish(url, file, seconds) {
  const peer = newPeer("H264");
  const track = new MediaStreamTrack({ kind: "video" });
  const { sender } = peer.addTransceiver(track, { direction: "sendonly" });
  let feedback = 0;
  sender.onRtcp.subscribe(() => feedback++);
  const resource = await connect(peer, url);
  const packetizer = new H264Packetizer();
  const units = accessUnits(file);
  const frames = Math.round(seconds * 30);
  const began = performance.now();
  for (let index = 0; index < frames; index++) {
    await sleep(Math.max(0, began + (index * 1000) / 30 - performance.now()));
    for (const packet of packetizer.packetize(units[index % units.length], index * 3000)) track.writeRtp(packet);
  }
  return { frames, feedback, ...(await leave(peer, resource)) };
}

async function play(url, seconds) {
  const peer = newPeer("H264");
  const seen = { frames: 0, keyframes: 0, gaps: 0 };
  let last;
  peer.onTrack.subscribe((track) =>
    track.onReceiveRtp.subscribe((packet) => {
      if (last !== undefined && packet.header.sequenceNumber !== ((last + 1) & 0xffff)) seen.gaps++;
      last = packet.header.sequenceNumber;
      if (H264RtpPayload.deSerialize(packet.payload).isKeyframe) seen.keyframes++;
      if (packet.header.marker) seen.frames++;
    }),
  );
  peer.addTransceiver("video", { direction: "recvonly" });
  const resource = await connect(peer, url);
  await sleep(seconds * 1000);
  return { ...seen, ...(await leave(peer, resource)) };
}

async function offer(url, codec) {
  const peer = newPeer(codec);
  peer.addTransceiver("video", { direction: "sendonly" });
  const reply = await post(peer, url);
  const told = { status: reply.status, body: await reply.text() };
  await peer.close();
  return told;
}

const [what, url, ...rest] = process.argv.slice(2);
const done = { publish, play, offer }[what];
console.log(JSON.stringify(await done(url, ...rest)));
process.exit(0);
