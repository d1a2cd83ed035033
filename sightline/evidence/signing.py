"""Signs frames by C2PA content credentials (c2pa.org, specification 2) with the c2pa library."""

import io
from typing import Final, final

import trio
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from sightline.evidence.certificates import SigningIdentity
from sightline.evidence.metadata import frame_properties, with_metadata
from sightline.evidence.origins import Origin, origins_of
from sightline.ports.evidence import EvidenceUnavailableError, FrameFacts

ASSERTION: Final = "live.sightline.frame"
"""Label of the assertion that holds the facts of the frame."""
_RECEIVED: Final = "received"
"""Refers to the ingredient within the manifest's definition."""
_SIGNING_THREADS: Final = 2
_FORMAT: Final = "image/jpeg"


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
        return await trio.to_thread.run_sync(self._sign, jpeg, self._manifest(facts), limiter=self._threads)

    def certificates(self) -> bytes:
        """The signing certificate and its issuers as PEM, in that order."""
        return self._identity.chain

    def _manifest(self, facts: FrameFacts) -> dict[str, object]:
        # No digitalSourceType: IPTC has none for "not known", and only c2pa.created needs one. What this server knows
        # is that it opened a video that it received, and encoded a picture of it as JPEG.
        of_received = {"parameters": {"ingredientIds": [_RECEIVED]}}
        return {
            "claim_generator_info": [{"name": "Sightline", "version": self._version}],
            "title": f"{facts.session_id}-{facts.frame.sequence}.jpg",
            "format": _FORMAT,
            "assertions": [
                {
                    "label": "c2pa.actions.v2",
                    "data": {
                        "actions": [
                            {"action": "c2pa.opened"} | of_received,
                            {"action": "c2pa.transcoded"} | of_received,
                        ]
                    },
                },
                {"label": ASSERTION, "data": frame_properties(facts) | {"origins": origins_of(facts)}},
            ],
            "ingredients": [
                {
                    "title": f"Live video of session {facts.session_id}, as received",
                    "description": f"{Origin.PUBLISHED}.".capitalize(),
                    "format": "application/octet-stream",
                    "relationship": "parentOf",
                    "label": _RECEIVED,
                }
            ],
        }

    def _sign(self, jpeg: bytes, manifest: dict[str, object]) -> bytes:
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
                builder.sign(signer, _FORMAT, io.BytesIO(jpeg), signed)
        except c2pa.C2paError as error:
            raise EvidenceUnavailableError(str(error)) from error
        return signed.getvalue()

    def _signature(self, data: bytes) -> bytes:
        """Sign by ES256: the two integers of the signature, 32 bytes each (RFC 9053, section 2.1)."""
        r, s = decode_dss_signature(self._identity.key.sign(data, ec.ECDSA(hashes.SHA256())))
        return r.to_bytes(32, "big") + s.to_bytes(32, "big")
