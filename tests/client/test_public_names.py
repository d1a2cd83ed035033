"""`import sightline_client` offers its public names, and imports their modules at the first use."""

import subprocess
import sys

import pytest

import sightline_client
from sightline_client import public


def test_importing_the_package_imports_none_of_its_dependencies() -> None:
    code = "import sys, sightline_client; print({'pydantic', 'httpx2', 'anyio'} & sys.modules.keys())"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed == "set()\n"


def test_every_public_name_is_a_name_of_the_package() -> None:
    names: dict[str, object] = {}
    exec("from sightline_client import *", names)
    assert {name: names[name] for name in public.__all__} == {name: getattr(public, name) for name in public.__all__}
    assert set(public.__all__) <= set(dir(sightline_client))
    with pytest.raises(AttributeError, match="no attribute 'Sightlime'"):
        _ = sightline_client.Sightlime
