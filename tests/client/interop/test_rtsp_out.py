"""Programs that read RTSP only get a session's video from MediaMTX, with the settings of deploy/."""

import itertools
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import simplejpeg
import trio

from sightline_client import AsyncSightline
from tests.video.support.harness import counter_of
from tests.video.support.real_engines import an_rtsp_bridge

pytestmark = pytest.mark.interop
EXAMPLE: Final = Path(__file__).parents[3] / "examples" / "rtsp_opencv.py"

READ: Final = """
import sys, cv2
video = cv2.VideoCapture(sys.argv[1], cv2.CAP_FFMPEG)
for number in range(30):
    is_read, picture = video.read()
    assert is_read, number
    cv2.imwrite(f"{number:02}.jpg", picture)
"""


GSTREAMER: Final = (
    "rtspsrc location={url} protocols=tcp ! rtph264depay ! h264parse ! openh264dec ! videoconvert ! "
    "jpegenc quality=90 ! identity eos-after=31 ! multifilesink location=gst-%02d.jpg"
)
"""Elements that DeepStream reads with too; its own decoder needs a GPU."""
FFMPEG: Final = "-nostdin -loglevel error -rtsp_transport tcp -i {url} -frames:v 30 -q:v 2 ffmpeg-%02d.jpg"
"""Options with which Frigate reads, before those of its detectors."""


async def run(folder: Path, *command: str) -> str:
    """Run a program to its end; returns what it prints."""
    call = partial(trio.run_process, command, cwd=folder, capture_stdout=True, capture_stderr=True, check=False)
    with trio.fail_after(300):
        done: subprocess.CompletedProcess[bytes] = await call()
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def pictures_in(folder: Path, pattern: str) -> list[bytes]:
    """The files in the order of their names."""
    return [path.read_bytes() for path in sorted(folder.glob(pattern))]


async def test_opencv_gstreamer_and_ffmpeg_read_a_session_by_rtsp_and_the_example_marks_people(
    dev: dict[str, Any], tmp_path: Path
) -> None:
    assert len(EXAMPLE.read_text().splitlines()) <= 24
    async with (
        AsyncSightline(dev["url"], dev["consumerKey"]) as sl,
        sl.view(dev["lat"], dev["lng"], seconds=300) as view,
    ):
        await view.frame()
        whep_url = (await sl.sessions.viewer_token(view.session.id)).whep_url
        async with an_rtsp_bridge(whep_url) as url:
            await run(tmp_path, sys.executable, "-c", READ, url)
            printed = await run(tmp_path, sys.executable, str(EXAMPLE), url, "4")
            await run(tmp_path, "gst-launch-1.0", "-q", *GSTREAMER.format(url=url).split())
            await run(tmp_path, "ffmpeg", *FFMPEG.format(url=url).split())
    for pattern in ("[0-9][0-9].jpg", "gst-*.jpg", "ffmpeg-*.jpg"):
        pictures = pictures_in(tmp_path, pattern)
        numbers = [number for number in map(counter_of, pictures) if number is not None]
        assert len(numbers) >= 10, f"the counter of the clip is read in {pattern}"
        rising = sum(later > earlier for earlier, later in itertools.pairwise(numbers))
        assert rising >= len(numbers) - 2, "frames come in order; the clip begins again at most once"
        assert simplejpeg.decode_jpeg_header(pictures[0])[:2] == (720, 1280)
    found = [int(count) for count in re.findall(r": (\d+) people", printed)]
    assert len(found) == 4
    assert max(found) >= 1, "people walk in the clip"
    marked = [simplejpeg.decode_jpeg(each) for each in pictures_in(tmp_path, "rtsp-*.jpg")]
    assert max(int(((each[..., 0] > 200) & (each[..., 1] < 60) & (each[..., 2] < 60)).sum()) for each in marked) > 100
