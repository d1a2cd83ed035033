// How well a connection sends video, from the browser's own measurements (W3C, Identifiers for WebRTC's Statistics API).

/** `poor`: who watches sees it stop or break up. `fair`: it is less than the camera gives. */
export type Grade = "good" | "fair" | "poor";

/** What a publisher sends, measured over the last seconds. */
export interface Quality {
  grade: Grade;
  /** Height of the picture that is sent, in pixels; null before the first frame. */
  height: number | null;
  framesPerSecond: number;
  kilobitsPerSecond: number;
  /** Share of the packets that do not arrive, from 0 to 1; null before the server has reported it. */
  loss: number | null;
  roundTripMs: number | null;
}

/** Bytes sent so far, at a time of the browser's measurements in milliseconds. */
export interface Sent {
  atMs: number;
  bytes: number;
}

const POOR = { framesPerSecond: 8, loss: 0.1, kilobitsPerSecond: 80 };
const FAIR = { framesPerSecond: 14, loss: 0.03, roundTripMs: 500 };

/** The fields of RTCOutboundRtpStreamStats and RTCRemoteInboundRtpStreamStats that are read here. */
interface Report {
  type: string;
  kind?: string;
  timestamp: number;
  bytesSent?: number;
  frameHeight?: number;
  framesPerSecond?: number;
  qualityLimitationReason?: string;
  fractionLost?: number;
  roundTripTime?: number;
}

/** Judge the reports of a peer connection. `before` is the second value of the look before; without it there is no judgement. */
export function qualityOf(reports: Iterable<Report>, before: Sent | null): [quality: Quality | null, sent: Sent | null] {
  const video = [...reports].filter((each) => each.kind === "video");
  const sending = video.filter((each) => each.type === "outbound-rtp");
  const [first] = sending;
  if (first === undefined) return [null, null];
  const sent = { atMs: first.timestamp, bytes: sending.reduce((sum, each) => sum + (each.bytesSent ?? 0), 0) };
  if (before === null || sent.atMs <= before.atMs) return [null, sent];
  const highest = (read: (report: Report) => number | undefined): number | null => {
    const found = video.map(read).filter((each) => each !== undefined);
    return found.length === 0 ? null : Math.max(...found);
  };
  const seen = {
    height: highest((each) => each.frameHeight),
    framesPerSecond: highest((each) => each.framesPerSecond) ?? 0,
    kilobitsPerSecond: ((sent.bytes - before.bytes) * 8) / (sent.atMs - before.atMs),
    loss: highest((each) => each.fractionLost),
    roundTripMs: highest((each) => (each.roundTripTime === undefined ? undefined : each.roundTripTime * 1000)),
  };
  const isLimited = sending.some((each) => each.qualityLimitationReason === "bandwidth" || each.qualityLimitationReason === "cpu");
  const loss = seen.loss ?? 0;
  const isPoor = seen.framesPerSecond < POOR.framesPerSecond || loss > POOR.loss || seen.kilobitsPerSecond < POOR.kilobitsPerSecond;
  const isFair = isLimited || seen.framesPerSecond < FAIR.framesPerSecond || loss > FAIR.loss || (seen.roundTripMs ?? 0) > FAIR.roundTripMs;
  return [{ grade: isPoor ? "poor" : isFair ? "fair" : "good", ...seen }, sent];
}
