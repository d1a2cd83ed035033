"""Choose the key and the certificates that sign frames."""

from importlib.metadata import version

from sightline.bootstrap.start_errors import check_setting
from sightline.config import Settings
from sightline.evidence.certificates import SigningIdentity, load_identity
from sightline.evidence.signing import C2paEvidence
from sightline.ports.clock import Clock
from sightline.ports.ids import Ids


def open_evidence(settings: Settings, ids: Ids, clock: Clock, public_url: str) -> C2paEvidence:
    """Load the signing identity: the one of the settings, else one issued by the root in the data directory."""
    if settings.frame_signing_key is not None and settings.frame_signing_cert is not None:
        with check_setting("SIGHTLINE_FRAME_SIGNING_KEY"):
            identity = SigningIdentity.from_files(settings.frame_signing_key, settings.frame_signing_cert)
    else:
        with check_setting("SIGHTLINE_DATA_DIR"):
            identity = load_identity(settings.data_dir, ids, clock.now_ms(), public_url)
    return C2paEvidence(identity, version("sightline-live"))
