"""`sightline verify`: check the signature of a frame or clip, and print what was signed, with who states it."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sightline_client.content_credentials import PictureReport, PictureVerdict, is_mp4, verify_picture

JPEG_START = b"\xff\xd8"
_EXPLAINED = {
    PictureVerdict.TRUSTED: "signed by a certificate of the given root, and not changed since. This proves that "
    "the signer delivered this picture with these statements, not that what the operator's device stated is true",
    PictureVerdict.UNTRUSTED: "not changed since it was signed, but the signer is not trusted. Pass --root with the "
    "server's root certificate (GET /.well-known/sightline-certificates.pem)",
    PictureVerdict.CHANGED: "CHANGED since it was signed, or signed with a certificate that is not valid",
    PictureVerdict.UNSIGNED: "not signed. Save a signed one with `sightline watch --signed`, or "
    "`sightline clip --signed`",
}
_ORIGINS_MISSING = "signed by an earlier version, which called every picture a capture of a camera without knowing it"


def run_verify(files: list[Path], root: Path | None, *, as_json: bool) -> int:
    """Print verdicts and facts. Returns 0 only if all pictures are trusted, 2 if a file is no picture.

    Args:
        root: PEM file; its last certificate is the trusted root.
    """
    return max([_verify(file, root, as_json=as_json, is_single=len(files) == 1) for file in files])


def _verify(file: Path, root: Path | None, *, as_json: bool, is_single: bool) -> int:
    try:
        picture = file.read_bytes()
        if not (picture.startswith(JPEG_START) or is_mp4(picture)):
            sys.stderr.write(
                f"{file} is no JPEG picture and no MP4 clip. Save one with `sightline watch` or `sightline clip`.\n"
            )
            return 2
        report = verify_picture(picture, None if root is None else root.read_text())
    except ModuleNotFoundError:
        sys.stderr.write("Content credentials need a library: pip install 'sightline-live[c2pa]'\n")
        return 2
    except (OSError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    if as_json:
        said = asdict(report) if is_single else {"file": str(file)} | asdict(report)
        sys.stdout.write(json.dumps(said, indent=2 if is_single else None, ensure_ascii=False) + "\n")
    else:
        sys.stdout.write("\n".join(_lines(file, report)) + "\n")
    return 0 if report.verdict is PictureVerdict.TRUSTED else 1


def _lines(file: Path, report: PictureReport) -> list[str]:
    lines = [f"{file}: {_EXPLAINED[report.verdict]}"]
    if report.verdict is not PictureVerdict.CHANGED:  # what a changed file says is worth nothing
        lines += [f"  signed by    {report.signer}"] if report.signer else []
        lines += [] if report.facts is None else _statements(report.facts)
    return lines + [f"  problem      {problem}" for problem in report.problems]


def _statements(facts: dict[str, Any]) -> list[str]:
    origins: dict[str, str] = facts.get("origins", {})
    position = None
    if facts.get("lat") is not None:
        position = f"{facts['lat']}, {facts['lng']}, accuracy {facts['accuracyM']:g} m, received {facts['positionAt']}"
    is_clip = "capturedFrom" in facts
    rows = (
        ("session", "sessionId", facts.get("sessionId")),
        ("frame", "sequence", facts.get("sequence")),
        ("captured at", "capturedAt", facts.get("capturedAt")),
        ("captured", "capturedFrom", f"{facts['capturedFrom']} to {facts['capturedTo']}" if is_clip else None),
        ("received at", "receivedAt", facts.get("receivedAt")),
        ("position", "lat", position),
        ("in geofence", "inGeofence", facts.get("inGeofence")),
    )
    return [
        f"  {'picture':12} {origins.get('picture', _ORIGINS_MISSING)}",
        *(f"  {title:12} {value} ({origins.get(name, 'origin not given')})" for title, name, value in rows if value),
    ]
