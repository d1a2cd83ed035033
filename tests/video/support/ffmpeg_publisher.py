"""Publishes the demo clip with FFmpeg's WHIP muxer, as `ffmpeg -re -stream_loop -1 -i CLIP -c copy -f whip URL` does.

Run as a process: `python -m tests.video.support.ffmpeg_publisher URL SECONDS CERT_FILE KEY_FILE`. Prints one line when
media flows and a last line when it has sent everything; exits with 1 when the muxer reports an error.
"""

import sys
import time

import av

from sightline_client.video.assets import clip_path


def main() -> None:
    """Remux the clip in a loop in real time."""
    url, seconds, cert_file, key_file = sys.argv[1], float(sys.argv[2]), sys.argv[3], sys.argv[4]
    source = av.open(str(clip_path()))
    stream = source.streams.video[0]
    options = {"cert_file": cert_file, "key_file": key_file}
    sink = av.open(url, "w", format="whip", options=options)
    out = sink.add_stream_from_template(stream)
    out.codec_context.max_b_frames = 0
    began = time.monotonic()
    base = float(stream.time_base)
    period = round(8.0 / base)
    offset = 0
    sent = 0
    while time.monotonic() - began < seconds:
        source.seek(0)
        for packet in source.demux(stream):
            if packet.size == 0 or packet.pts is None:
                continue
            packet.pts += offset
            packet.dts = packet.pts
            packet.time_base = stream.time_base
            packet.stream = out
            ahead = began + packet.pts * base - time.monotonic()
            if ahead > 0:
                time.sleep(ahead)
            sink.mux(packet)
            sent += 1
            if sent == 1:
                sys.stdout.write("publishing\n")
                sys.stdout.flush()
            if time.monotonic() - began > seconds:
                break
        offset += period
    sys.stdout.write(f"sent {sent}\n")
    sink.close()


if __name__ == "__main__":
    main()
