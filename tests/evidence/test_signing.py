"""Signed frames: what a verifier accepts, and what it refuses."""

import io
import json
import stat
from pathlib import Path
from typing import Any

import c2pa
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from typer.testing import CliRunner

from sightline.domain.geofence import Fix
from sightline.domain.value import replace
from sightline.evidence.certificates import SigningIdentity, load_identity
from sightline.system.clock import SystemClock
from sightline.system.ids import SystemIds
from sightline_client.commands import application
from sightline_client.content_credentials import PictureVerdict, verify_picture
from tests.evidence.pictures import CAPTURED_AT_MS, SESSION_ID, a_picture, evidence_in, facts_of

FIX = Fix(lat=52.520008, lng=13.404954, accuracy_m=5, at_ms=CAPTURED_AT_MS, taken_at_ms=CAPTURED_AT_MS)


async def signed_in(folder: Path) -> tuple[bytes, str]:
    """A signed frame of a server with this data directory, and the server's certificates."""
    evidence = evidence_in(folder)
    facts = facts_of(a_picture(), FIX)
    return await evidence.sign(evidence.describe(facts), facts), evidence.certificates().decode()


async def test_a_signed_frame_says_who_what_where_and_when(tmp_path: Path) -> None:
    picture, chain = await signed_in(tmp_path)
    report = verify_picture(picture, chain)
    assert (report.verdict, report.signer, report.problems) == (PictureVerdict.TRUSTED, "https://live.example", ())
    assert report.facts is not None
    assert (report.facts["sessionId"], report.facts["sequence"]) == (SESSION_ID, 41)
    assert (report.facts["lat"], report.facts["lng"]) == (52.520008, 13.404954)
    assert report.facts["capturedAt"] == "2026-10-26T07:33:20.123Z"


def manifest_of(picture: bytes) -> dict[str, Any]:
    """The manifest as any C2PA reader sees it."""
    with c2pa.Reader("image/jpeg", io.BytesIO(picture)) as reader:
        read = json.loads(reader.json())
    manifest: dict[str, Any] = read["manifests"][read["active_manifest"]]
    return manifest


async def test_a_frame_is_a_received_video_of_unknown_source_and_no_capture(tmp_path: Path) -> None:
    picture, chain = await signed_in(tmp_path)
    manifest = manifest_of(picture)
    assert "digitalSourceType" not in json.dumps(manifest)
    (actions,) = [each["data"]["actions"] for each in manifest["assertions"] if "actions" in each["label"]]
    assert [each["action"] for each in actions] == ["c2pa.opened", "c2pa.transcoded"]
    (received,) = manifest["ingredients"]
    assert (received["relationship"], received["title"]) == (
        "parentOf",
        f"Live video of session {SESSION_ID}, as received",
    )
    assert "does not know what made it" in received["description"]
    assert verify_picture(picture, chain).verdict is PictureVerdict.TRUSTED


@pytest.mark.parametrize("has_device_clock", [True, False])
async def test_each_signed_fact_names_its_origin(tmp_path: Path, has_device_clock: bool) -> None:
    evidence, facts = evidence_in(tmp_path), facts_of(a_picture(), FIX)
    facts = replace(facts, frame=replace(facts.frame, captured_by_rtcp=has_device_clock))
    picture = await evidence.sign(evidence.describe(facts), facts)
    signed = verify_picture(picture, evidence.certificates().decode()).facts
    assert signed is not None
    origins = signed["origins"]
    assert origins.keys() == (signed.keys() - {"origins"}) | {"picture"}
    assert {origins[name] for name in ("lat", "lng", "accuracyM")} == {"stated by the operator's device"}
    assert origins["inGeofence"] == "computed by the service from the stated position"
    assert origins["receivedAt"] == "clock of the service, when it arrived"
    device, service = "clock of the operator's device", "clock of the service, when it arrived"
    assert origins["capturedAt"] == (device if has_device_clock else service)


async def test_a_frame_of_an_earlier_run_is_trusted_by_the_root_of_a_later_one(tmp_path: Path) -> None:
    picture, _ = await signed_in(tmp_path)
    later = evidence_in(tmp_path).certificates().decode()
    assert verify_picture(picture, later).verdict is PictureVerdict.TRUSTED


async def test_another_servers_frame_is_not_trusted(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    picture, _ = await signed_in(tmp_path / "one")
    other = evidence_in(tmp_path / "two").certificates().decode()
    assert verify_picture(picture, other).verdict is PictureVerdict.UNTRUSTED
    assert verify_picture(picture, None).verdict is PictureVerdict.UNTRUSTED


async def test_one_changed_byte_anywhere_is_found(tmp_path: Path) -> None:
    picture, chain = await signed_in(tmp_path)
    start = picture.index(b"Exif\x00\x00")
    for at in [start + 40, picture.index(b"sightline:lat") + 16, *range(len(picture) - 200, len(picture) - 2, 37)]:
        changed = bytearray(picture)
        changed[at] ^= 1
        assert verify_picture(bytes(changed), chain).verdict is PictureVerdict.CHANGED, at


async def test_an_unsigned_frame_is_said_to_be_unsigned(tmp_path: Path) -> None:
    unsigned = evidence_in(tmp_path).describe(facts_of(a_picture(), FIX))
    assert verify_picture(unsigned, None).verdict is PictureVerdict.UNSIGNED


def test_the_root_key_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    evidence_in(tmp_path)
    assert stat.S_IMODE((tmp_path / "evidence" / "root_key.pem").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "evidence").stat().st_mode) == 0o700


def test_a_root_with_another_key_is_refused_and_not_replaced(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        evidence_in(tmp_path / name)
    (tmp_path / "a/evidence/root_key.pem").write_bytes((tmp_path / "b/evidence/root_key.pem").read_bytes())
    before = (tmp_path / "a/evidence/root.pem").read_bytes()
    with pytest.raises(ValueError, match="is not the key of"):
        evidence_in(tmp_path / "a")
    assert (tmp_path / "a/evidence/root.pem").read_bytes() == before


def test_a_first_start_that_was_killed_between_the_two_files_starts_again(tmp_path: Path) -> None:
    evidence_in(tmp_path)
    (tmp_path / "evidence" / "root.pem").unlink()
    chain = x509.load_pem_x509_certificates(evidence_in(tmp_path).certificates())
    assert chain[0].issuer == chain[1].subject


async def test_a_key_of_the_settings_signs(tmp_path: Path) -> None:
    identity = load_identity(tmp_path, SystemIds(), SystemClock().now_ms(), "https://own.example")
    pem = identity.key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (tmp_path / "key.pem").write_bytes(pem)
    (tmp_path / "chain.pem").write_bytes(identity.chain)
    read = SigningIdentity.from_files(tmp_path / "key.pem", tmp_path / "chain.pem")
    assert read.chain == identity.chain
    with pytest.raises(ValueError, match="is not the key of"):
        SigningIdentity.from_files(tmp_path / "evidence/root_key.pem", tmp_path / "chain.pem")


async def test_the_command_prints_what_was_signed_and_who_states_it(tmp_path: Path) -> None:
    picture, chain = await signed_in(tmp_path)
    (tmp_path / "frame.jpg").write_bytes(picture)
    (tmp_path / "root.pem").write_text(chain)
    frame, root = str(tmp_path / "frame.jpg"), str(tmp_path / "root.pem")
    trusted = CliRunner().invoke(application(), ["verify", frame, "--root", root])
    assert trusted.exit_code == 0
    for shown in ("not changed since", "https://live.example", SESSION_ID, "52.520008, 13.404954", "07:33:20.123Z"):
        assert shown in trusted.output
    lines = {line[2:14].strip(): line[15:] for line in trusted.output.splitlines()[1:]}
    assert lines["picture"] == "published by the operator's device; the service does not know what made it"
    assert lines["position"].endswith("(stated by the operator's device)")
    assert lines["captured at"].endswith("(clock of the operator's device)")
    assert lines["in geofence"] == "true (computed by the service from the stated position)"
    unknown = CliRunner().invoke(application(), ["verify", frame])
    assert (unknown.exit_code, "signer is not trusted" in unknown.output) == (1, True)
    (tmp_path / "frame.jpg").write_bytes(picture[:-40] + bytes(20) + picture[-20:])
    changed = CliRunner().invoke(application(), ["verify", frame, "--root", root])
    assert (changed.exit_code, "CHANGED" in changed.output, SESSION_ID in changed.output) == (1, True, False)


def test_a_frame_verifies_for_25_years_because_it_carries_no_timestamp(tmp_path: Path) -> None:
    chain = x509.load_pem_x509_certificates(evidence_in(tmp_path).certificates())
    years = [(each.not_valid_after_utc - each.not_valid_before_utc).days / 365 for each in chain]
    assert years[0] >= 25
    assert chain[1].not_valid_after_utc > chain[0].not_valid_after_utc
