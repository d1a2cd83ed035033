"""The guides' code blocks run as printed, and every setting that guides and deployment files name exists."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from sightline.config import Settings
from sightline.config.loading import OTHER_VARIABLES

ROOT: Final = Path(__file__).parents[2]
GUIDES: Final = ROOT / "docs" / "guides"
BLOCK: Final = re.compile(r"^```(sh|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", ["watch.md", "film.md", "host.md"])
def test_the_code_of_a_guide_runs_as_printed(dev: dict[str, Any], name: str, tmp_path: Path) -> None:
    blocks = BLOCK.findall((GUIDES / name).read_text())
    assert blocks
    env = os.environ | {"SIGHTLINE_URL": dev["url"], "SIGHTLINE_API_KEY": dev["consumerKey"]}
    env["PATH"] = f"{Path(sys.executable).parent}:{env['PATH']}"
    for language, code in blocks:
        shell = ["bash", "-euo", "pipefail", "-c", code]
        command = shell if language == "sh" else [sys.executable, "-c", code]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=90, check=False)
        assert done.returncode == 0, f"{code}\n{done.stderr[-2000:]}"


@pytest.mark.parametrize("path", ["deploy/Containerfile", "deploy/compose.yaml", "deploy/sightline.service"])
def test_settings_of_deployment_files_exist(path: str) -> None:
    named = set(re.findall(r"\bSIGHTLINE_[A-Z_]+[A-Z]\b", (ROOT / path).read_text()))
    known = {f"SIGHTLINE_{name.upper()}" for name in Settings.model_fields} | OTHER_VARIABLES
    assert named
    assert named <= known


def test_the_compose_file_builds_the_containerfile() -> None:
    compose = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())
    build = compose["services"]["sightline"]["build"]
    assert (ROOT / "deploy" / build["context"] / build["dockerfile"]).resolve() == ROOT / "deploy" / "Containerfile"
