"""A C2PA implementation that shares no code with ours accepts what a server signs, and refuses it once changed."""

import json
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from sightline_client import Frame, Sightline, View

pytestmark = pytest.mark.interop
VERIFIER: Final = Path(__file__).parents[3] / ".interop" / "c2pa" / "verify.mjs"
TRIES: Final = 60


def verdicts(*files: Path) -> list[dict[str, Any]]:
    assert VERIFIER.exists(), "run scripts/interop_c2pa.sh"
    command = ["node", str(VERIFIER), *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def exif_of(file: Path) -> dict[str, Any]:
    """What ExifTool reads, with its warnings of wrong structures."""
    command = ["exiftool", "-json", "-G1", "-a", "-n", "-struct", "-validate", "-warning", "-all", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    (found,) = json.loads(done.stdout)
    return dict(found)


def picture_with_position(view: View, file: Path) -> Frame:
    """Take pictures until the server knows a position for one: the first may come before the first heartbeat."""
    for _ in range(TRIES):
        picture = view.frame(signed=True)
        file.write_bytes(picture.jpeg)
        if "GPS:GPSLatitude" in exif_of(file):
            return picture
    raise AssertionError("no picture has a position")


def test_a_signed_picture_and_a_signed_clip_are_valid_and_changed_ones_are_not(
    dev: dict[str, Any], tmp_path: Path
) -> None:
    with Sightline(dev["url"], dev["consumerKey"]) as sl, sl.view(dev["lat"], dev["lng"], seconds=300) as view:
        picture = picture_with_position(view, tmp_path / "picture.jpg")
        clip = view.clip(5, signed=True)
    files = {"picture.jpg": picture.jpeg, "clip.mp4": clip.video}
    for name, content in files.items():
        changed = bytearray(content)
        changed[-200] ^= 1
        (tmp_path / name).write_bytes(content)
        (tmp_path / f"changed-{name}").write_bytes(changed)
    read = exif_of(tmp_path / "picture.jpg")
    assert (read["GPS:GPSLatitude"], read["GPS:GPSLongitude"]) == pytest.approx((dev["lat"], dev["lng"]), abs=0.01)
    assert read["ExifIFD:DateTimeOriginal"].startswith(picture.captured_at.strftime("%Y:%m:%d %H:%M:%S"))
    assert view.session.id in read["IFD0:ImageDescription"]
    warnings = read.get("ExifTool:Warning", [])
    assert all("Missing required" in each for each in ([warnings] if isinstance(warnings, str) else warnings))
    good, bad = verdicts(*(tmp_path / name for name in files)), verdicts(*(tmp_path / f"changed-{n}" for n in files))
    assert [(each["isValid"], each["failed"]) for each in good] == [(True, [])] * 2
    hashes = ("assertion.dataHash", "assertion.bmffHash")
    assert all(f"{kind}.match" in each["passed"] for kind, each in zip(hashes, good, strict=True))
    assert [(each["isValid"], each["failed"]) for each in bad] == [(False, [f"{kind}.mismatch"]) for kind in hashes]
