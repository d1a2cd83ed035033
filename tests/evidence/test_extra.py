"""Without the extra `c2pa` a server that shall sign frames does not start, and says what to install."""

import pytest

from sightline.bootstrap.failures.errors import StartError
from sightline.bootstrap.options.frame_signing import require_signing
from sightline.config import Settings


def absent(_name: str) -> None:
    """Find no library."""


@pytest.mark.parametrize("value", ["request", "always"])
def test_a_server_that_shall_sign_needs_the_extra(value: str) -> None:
    settings = Settings.model_validate({"frame_signing": value})
    require_signing(settings)
    with pytest.raises(StartError) as refused:
        require_signing(settings, absent)
    said = str(refused.value)
    assert f"SIGHTLINE_FRAME_SIGNING={value}" in said
    assert "pip install 'sightline-live[c2pa]'" in said


def test_a_server_signs_only_if_it_is_told_to_and_needs_no_library_otherwise() -> None:
    require_signing(Settings.model_validate({}), absent)
