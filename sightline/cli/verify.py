"""`sightline verify`: check the signature of a frame and print what it proves."""

import sys
from dataclasses import asdict
from pathlib import Path

import orjson

from sightline.evidence.verification import PictureReport, PictureVerdict, verify_picture

JPEG_START = b"\xff\xd8"
_EXPLAINED = {
    PictureVerdict.TRUSTED: "signed by a certificate of the given root, and not changed since",
    PictureVerdict.UNTRUSTED: "not changed since it was signed, but the signer is not trusted. Pass --root with the "
    "server's root certificate (GET /.well-known/sightline-certificates.pem)",
    PictureVerdict.CHANGED: "CHANGED since it was signed, or signed with a certificate that is not valid",
    PictureVerdict.UNSIGNED: "not signed. Ask the server for a signed frame with ?signed=1",
}


def run_verify(file: Path, root: Path | None, *, as_json: bool) -> int:
    """Print the verdict and the facts. Returns 0 only for a trusted picture, 2 for a file that is no picture.

    Args:
        root: PEM file; its last certificate is the trusted root.
    """
    try:
        picture = file.read_bytes()
        if not picture.startswith(JPEG_START):
            sys.stderr.write(f"{file} is not a JPEG picture. Save a frame with `sightline watch`, or GET .../frame.\n")
            return 2
        report = verify_picture(picture, None if root is None else root.read_text())
    except (OSError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    if as_json:
        sys.stdout.write(orjson.dumps(asdict(report), option=orjson.OPT_INDENT_2).decode() + "\n")
    else:
        sys.stdout.write("\n".join(_lines(file, report)) + "\n")
    return 0 if report.verdict is PictureVerdict.TRUSTED else 1


def _lines(file: Path, report: PictureReport) -> list[str]:
    lines = [f"{file}: {_EXPLAINED[report.verdict]}"]
    facts = report.facts or {}
    rows = {
        "signed by": report.signer,
        "session": facts.get("sessionId"),
        "frame": facts.get("sequence"),
        "captured at": f"{facts['capturedAt']} (by the clock of the {facts['capturedBy']})" if facts else None,
        "position": f"{facts['lat']}, {facts['lng']} (accuracy {facts['accuracyM']:g} m, at {facts['positionAt']})"
        if facts.get("lat") is not None
        else None,
        "in geofence": facts.get("inGeofence"),
    }
    if report.verdict is not PictureVerdict.CHANGED:  # what a changed file says is worth nothing
        lines += [f"  {name:12} {value}" for name, value in rows.items() if value]
    return lines + [f"  problem      {problem}" for problem in report.problems]
