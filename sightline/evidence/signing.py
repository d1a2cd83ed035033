"""Signs frames and clips by C2PA content credentials (c2pa.org, specification 2) with the c2pa library."""

import io
from collections.abc import Sequence
from typing import Final, final

import trio
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from sightline.evidence.certificates import SigningIdentity
from sightline.evidence.metadata import clip_properties, frame_properties, with_metadata
from sightline.evidence.origins import Origin, clip_origins_of, origins_of
from sightline.ports.evidence import ClipFacts, EvidenceUnavailableError, FrameFacts

ASSERTION: Final = "live.sightline.frame"
"""Label of the assertion that holds the facts of the frame."""
CLIP_ASSERTION: Final = "live.sightline.clip"
_RECEIVED: Final = "received"
"""Refers to the ingredient within the manifest's definition."""
_SIGNING_THREADS: Final = 2
_JPEG: Final = "image/jpeg"
MP4: Final = "video/mp4"
"""The only container of clips that can be signed: C2PA has no place for a manifest in WebM."""


@final
class C2paEvidence:
    """Embeds the facts of a frame in its JPEG, and signs it.

    One signature takes about 6 ms of a worker thread; see docs/ops/video.md.
    """

    def __init__(self, identity: SigningIdentity, version: str) -> None:
        self._identity = identity
        self._version = version
        self._software = f"Sightline {version}"
        self._threads = trio.CapacityLimiter(_SIGNING_THREADS)

    def describe(self, facts: FrameFacts) -> bytes:
        """Return the JPEG with EXIF and XMP metadata. The encoded picture is not changed."""
        return with_metadata(facts, self._software)

    async def sign(self, jpeg: bytes, facts: FrameFacts) -> bytes:
        """Return the JPEG with a signed C2PA manifest that covers the picture and its metadata.

        Raises:
            EvidenceUnavailableError: The signing library or the certificate cannot be used.
        """
        # What this server knows is that it opened a video that it received, and encoded a picture of it as JPEG.
        manifest = self._manifest(
            title=f"{facts.session_id}-{facts.frame.sequence}.jpg",
            media_type=_JPEG,
            session_id=facts.session_id,
            actions=("c2pa.opened", "c2pa.transcoded"),
            assertion={"label": ASSERTION, "data": frame_properties(facts) | {"origins": origins_of(facts)}},
        )
        return await trio.to_thread.run_sync(self._sign, jpeg, _JPEG, manifest, limiter=self._threads)

    async def sign_clip(self, facts: ClipFacts) -> bytes:
        """Return the clip's MP4 with a signed C2PA manifest.

        Raises:
            EvidenceUnavailableError: The signing library or the certificate cannot be used.
        """
        # The encoded pictures are those that were received: the last ones, in another container.
        manifest = self._manifest(
            title=f"{facts.session_id}-{facts.clip.ended_at_ms}.mp4",
            media_type=MP4,
            session_id=facts.session_id,
            actions=("c2pa.opened", "c2pa.trimmed", "c2pa.repackaged"),
            assertion={"label": CLIP_ASSERTION, "data": clip_properties(facts) | {"origins": clip_origins_of(facts)}},
        )
        return await trio.to_thread.run_sync(self._sign, facts.clip.video, MP4, manifest, limiter=self._threads)

    def certificates(self) -> bytes:
        """The signing certificate and its issuers as PEM, in that order."""
        return self._identity.chain

    def _manifest(
        self, *, title: str, media_type: str, session_id: str, actions: Sequence[str], assertion: dict[str, object]
    ) -> dict[str, object]:
        # No digitalSourceType: IPTC has none for "not known", and only c2pa.created needs one.
        of_received = {"parameters": {"ingredientIds": [_RECEIVED]}}
        return {
            "claim_generator_info": [{"name": "Sightline", "version": self._version}],
            "title": title,
            "format": media_type,
            "assertions": [
                {
                    "label": "c2pa.actions.v2",
                    "data": {"actions": [{"action": action} | of_received for action in actions]},
                },
                assertion,
            ],
            "ingredients": [
                {
                    "title": f"Live video of session {session_id}, as received",
                    "description": f"{Origin.PUBLISHED}.".capitalize(),
                    "format": "application/octet-stream",
                    "relationship": "parentOf",
                    "label": _RECEIVED,
                }
            ],
        }

    def _sign(self, unsigned: bytes, media_type: str, manifest: dict[str, object]) -> bytes:
        # The library takes 20 MB of memory; a server that never signs does not load it.
        import c2pa

        signed = io.BytesIO()
        settings = {"builder": {"thumbnail": {"enabled": False}}}
        try:
            with (
                c2pa.Context(c2pa.Settings.from_dict(settings)) as context,
                c2pa.Signer.from_callback(
                    self._signature, c2pa.C2paSigningAlg.ES256, self._identity.chain.decode(), None
                ) as signer,
                c2pa.Builder(manifest, context) as builder,
            ):
                builder.sign(signer, media_type, io.BytesIO(unsigned), signed)
        except c2pa.C2paError as error:
            raise EvidenceUnavailableError(str(error)) from error
        return signed.getvalue()

    def _signature(self, data: bytes) -> bytes:
        """Sign by ES256: the two integers of the signature, 32 bytes each (RFC 9053, section 2.1)."""
        r, s = decode_dss_signature(self._identity.key.sign(data, ec.ECDSA(hashes.SHA256())))
        return r.to_bytes(32, "big") + s.to_bytes(32, "big")
