"""FFmpeg 8's WHIP muxer (in PyAV), which answers no consent checks, can publish."""

import datetime
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from sightline.ports.video import MediaKind
from sightline.video.rtc import ice
from tests.video.support.harness import a_frame, a_rig, a_session_id, play_json

CONSENT_EXPIRES_S = ice.CONSENT_INTERVAL_S * 1.2 * ice.CONSENT_FAILURES + 1
"""By this time a peer that answers no consent check would be dropped."""


def write_certificate(folder: Path) -> tuple[str, str]:
    """Write a self-signed P-256 certificate and its key as files."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ffmpeg")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=30))
        .sign(key, hashes.SHA256())
    )
    cert_file, key_file = folder / "cert.pem", folder / "key.pem"
    cert_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
    )
    return str(cert_file), str(key_file)


@asynccontextmanager
async def ffmpeg_publishing(whip_url: str, seconds: float, folder: Path) -> AsyncIterator[trio.Process]:
    """Run FFmpeg's muxer in a separate process."""
    command = [sys.executable, "-m", "tests.video.support.ffmpeg_publisher", whip_url, str(seconds)]
    process = await trio.lowlevel.open_process([*command, *write_certificate(folder)], stdout=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()


async def test_ffmpeg_publishes_without_a_drop_although_it_answers_no_consent_checks(tmp_path: Path):
    async with a_rig() as rig:
        made = await rig.backend.create_input(a_session_id())
        async with ffmpeg_publishing(made.whip_url, CONSENT_EXPIRES_S + 3, tmp_path) as ffmpeg:
            await rig.heard(MediaKind.CONNECTED)
            assert (await a_frame(rig.backend, made.ref)).width == 1280
            watched = await play_json(made.whep_url, CONSENT_EXPIRES_S)
            assert await ffmpeg.wait() == 0, "the muxer had no error"
        kinds = [event.kind for event in rig.events]
    assert watched["frames"] > 8 * CONSENT_EXPIRES_S, watched
    assert MediaKind.DISCONNECTED not in kinds
    assert MediaKind.NO_RTP not in kinds
    assert kinds.count(MediaKind.CONNECTED) == 1
