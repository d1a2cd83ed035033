"""Verifies the C2PA content credentials of a picture or clip. Needs the extra `verify`."""

import io
import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, final

from sightline_client.errors import MissingExtraError

try:
    import c2pa
except ImportError:
    raise MissingExtraError("verify") from None

ASSERTIONS: Final = ("live.sightline.frame", "live.sightline.clip")
"""Labels of the assertion that holds the facts of a frame or clip."""
_UNTRUSTED: Final = "signingCredential.untrusted"


class PictureVerdict(StrEnum):
    """Result of a verification."""

    TRUSTED = "trusted"
    """Unchanged since it was signed, by a certificate of a root that the caller trusts.

    What others stated to the signer, such as the position, can be untrue.
    """
    UNTRUSTED = "untrusted"
    """Unchanged since it was signed, but the root of its certificate was not given or is another one."""
    CHANGED = "changed"
    """The picture, its metadata or the manifest differs from what was signed, or the certificate is not valid now."""
    UNSIGNED = "unsigned"
    """There is no C2PA manifest."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PictureReport:
    """What the signature of a picture proves, and what was signed."""

    verdict: PictureVerdict
    signer: str = ""
    """Common name of the signing certificate: the URL of the server."""
    facts: dict[str, Any] | None = None
    """The facts of the frame or clip that were signed; None if the manifest has none. `origins` says who states each;
    frames of earlier versions do not have it.
    """
    problems: tuple[str, ...] = ()
    """What failed, one line each."""


def is_mp4(file: bytes) -> bool:
    """Whether a file begins as MP4 does."""
    return file[4:8] == b"ftyp"


def verify_picture(file: bytes, roots: str | None) -> PictureReport:
    """Verify the signature, the hashes and, if roots are given, the certificate chain of a picture or clip.

    Args:
        file: A JPEG or MP4 file.
        roots: Trusted root certificates as PEM.
    """
    # A file can name a manifest elsewhere: it is not fetched, since the file may come from a stranger.
    settings: dict[str, Any] = {"verify": {"verify_trust": True, "remote_manifest_fetch": False}}
    if roots is not None:
        settings["trust"] = {"trust_anchors": roots}
    try:
        with (
            c2pa.Context(c2pa.Settings.from_dict(settings)) as context,
            c2pa.Reader("video/mp4" if is_mp4(file) else "image/jpeg", io.BytesIO(file), context=context) as reader,
        ):
            report = json.loads(reader.json())
    except c2pa.C2paError.ManifestNotFound:
        return PictureReport(verdict=PictureVerdict.UNSIGNED)
    except c2pa.C2paError as error:
        return PictureReport(verdict=PictureVerdict.CHANGED, problems=(str(error),))
    manifest = report["manifests"][report["active_manifest"]]
    facts = next((each["data"] for each in manifest["assertions"] if each["label"] in ASSERTIONS), None)
    failures = report.get("validation_status", [])
    serious = [each for each in failures if each["code"] != _UNTRUSTED]
    if serious:
        verdict = PictureVerdict.CHANGED
    elif failures:
        verdict = PictureVerdict.UNTRUSTED
    else:
        verdict = PictureVerdict.TRUSTED
    return PictureReport(
        verdict=verdict,
        signer=manifest.get("signature_info", {}).get("common_name", ""),
        facts=facts,
        problems=tuple(f"{each['code']}: {each.get('explanation', '')}" for each in failures),
    )
