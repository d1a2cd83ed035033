"""Frames for the tests of evidence."""

from pathlib import Path

import numpy as np
import simplejpeg

from sightline.domain.geofence import Fix
from sightline.evidence.certificates import load_identity
from sightline.evidence.signing import C2paEvidence
from sightline.ports.evidence import FrameFacts
from sightline.ports.video import Frame, PictureState
from sightline.system.clock import SystemClock
from sightline.system.ids import SystemIds

CAPTURED_AT_MS = 1_793_000_000_123
"""2026-10-26T07:33:20.123Z"""
SESSION_ID = "3f0c8c8e-6a1b-4b51-9e0e-0a7f1c9d2b44"


def a_picture(width: int = 320, height: int = 180) -> bytes:
    """A JPEG of a gradient with noise, so that every part of the file carries picture."""
    rows = np.linspace(0, 255, height, dtype=np.uint8)[:, None, None]
    noise = np.random.default_rng(7).integers(0, 60, (height, width, 3), dtype=np.uint8)
    return simplejpeg.encode_jpeg(np.ascontiguousarray(rows // 2 + noise), quality=80)


def facts_of(jpeg: bytes, fix: Fix | None) -> FrameFacts:
    """The facts of frame 41 of a session."""
    frame = Frame(
        jpeg=jpeg,
        sequence=41,
        captured_at_ms=CAPTURED_AT_MS,
        received_at_ms=CAPTURED_AT_MS + 40,
        age_ms=12,
        width=320,
        height=180,
        state=PictureState.LIVE,
        captured_by_rtcp=True,
        publisher_epoch=7,
    )
    return FrameFacts(session_id=SESSION_ID, frame=frame, fix=fix, is_in_geofence=True, meter_state="RUNNING")


def evidence_in(folder: Path) -> C2paEvidence:
    """The signer of a server with this data directory."""
    identity = load_identity(folder, SystemIds(), SystemClock().now_ms(), "https://live.example")
    return C2paEvidence(identity, "1.2.3")
