"""EXIF and XMP of a frame, read back by Pillow."""

import io
import xml.etree.ElementTree as ET

import numpy as np
import pytest
import simplejpeg
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import ExifTags, Image

from sightline.domain.geofence import Fix
from sightline.evidence.metadata import XMP_NAMESPACE, with_metadata
from tests.evidence.pictures import CAPTURED_AT_MS, SESSION_ID, a_picture, facts_of

BERLIN = Fix(lat=52.520008, lng=-13.404954, accuracy_m=4.5, at_ms=CAPTURED_AT_MS - 1_500, taken_at_ms=CAPTURED_AT_MS)


def degrees(parts: tuple[float, float, float]) -> float:
    return float(parts[0]) + float(parts[1]) / 60 + float(parts[2]) / 3600


def test_the_picture_is_not_changed() -> None:
    jpeg = a_picture()
    described = with_metadata(facts_of(jpeg, BERLIN), "Sightline 1")
    assert described.endswith(jpeg[2:])
    assert np.array_equal(simplejpeg.decode_jpeg(described), simplejpeg.decode_jpeg(jpeg))


def test_exif_says_when_and_where() -> None:
    exif = Image.open(io.BytesIO(with_metadata(facts_of(a_picture(), BERLIN), "Sightline 1"))).getexif()
    assert exif[ExifTags.Base.Software] == "Sightline 1"
    assert exif[ExifTags.Base.ImageDescription] == f"Session {SESSION_ID}, frame 41"
    taken = exif.get_ifd(ExifTags.IFD.Exif)
    assert taken[ExifTags.Base.DateTimeOriginal] == "2026:10:26 07:33:20"
    assert taken[ExifTags.Base.SubsecTimeOriginal] == "123"
    assert taken[ExifTags.Base.OffsetTimeOriginal] == "+00:00"
    gps = exif.get_ifd(ExifTags.IFD.GPSInfo)
    assert (gps[ExifTags.GPS.GPSLatitudeRef], gps[ExifTags.GPS.GPSLongitudeRef]) == ("N", "W")
    assert degrees(gps[ExifTags.GPS.GPSLatitude]) == pytest.approx(52.520008, abs=5e-7)
    assert degrees(gps[ExifTags.GPS.GPSLongitude]) == pytest.approx(13.404954, abs=5e-7)
    assert float(gps[ExifTags.GPS.GPSHPositioningError]) == 4.5
    assert gps[ExifTags.GPS.GPSDateStamp] == "2026:10:26"


def test_xmp_has_every_fact() -> None:
    packet = Image.open(io.BytesIO(with_metadata(facts_of(a_picture(), BERLIN), "Sightline 1"))).info["xmp"]
    description = next(each for each in ET.fromstring(packet).iter() if each.tag.endswith("}Description"))
    found = {
        name.removeprefix(f"{{{XMP_NAMESPACE}}}"): value
        for name, value in description.attrib.items()
        if name.startswith(f"{{{XMP_NAMESPACE}}}")
    }
    assert found == {
        "sessionId": SESSION_ID, "sequence": "41", "capturedAt": "2026-10-26T07:33:20.123Z", "capturedBy": "publisher",
        "receivedAt": "2026-10-26T07:33:20.163Z", "publisherEpoch": "7", "pictureState": "live",
        "meterState": "RUNNING", "inGeofence": "true", "lat": "52.520008", "lng": "-13.404954", "accuracyM": "4.5",
        "positionAt": "2026-10-26T07:33:18.623Z", "statedByOperator": "picture capturedAt lat lng accuracyM",
    }  # fmt: skip


def test_a_frame_without_a_position_has_no_gps_directory() -> None:
    exif = Image.open(io.BytesIO(with_metadata(facts_of(a_picture(), None), "Sightline 1"))).getexif()
    assert exif.get_ifd(ExifTags.IFD.GPSInfo) == {}
    assert exif.get_ifd(ExifTags.IFD.Exif)[ExifTags.Base.DateTimeOriginal] == "2026:10:26 07:33:20"


@settings(max_examples=200, deadline=None)
@given(lat=st.floats(-90, 90), lng=st.floats(-180, 180), accuracy_m=st.floats(0, 1e7), at_ms=st.integers(0, 2**42))
def test_every_position_is_read_back(lat: float, lng: float, accuracy_m: float, at_ms: int) -> None:
    fix = Fix(lat=lat, lng=lng, accuracy_m=accuracy_m, at_ms=at_ms, taken_at_ms=at_ms)
    gps = (
        Image.open(io.BytesIO(with_metadata(facts_of(a_picture(16, 16), fix), "Sightline 1")))
        .getexif()
        .get_ifd(ExifTags.IFD.GPSInfo)
    )
    assert degrees(gps[ExifTags.GPS.GPSLatitude]) == pytest.approx(abs(lat), abs=6e-7)
    assert degrees(gps[ExifTags.GPS.GPSLongitude]) == pytest.approx(abs(lng), abs=6e-7)


def test_what_is_not_a_jpeg_is_refused() -> None:
    with pytest.raises(ValueError, match="not a JPEG"):
        with_metadata(facts_of(b"\x89PNG", None), "Sightline 1")
