"""The committed OpenAPI document gives TypeScript types with which a client compiles in strict mode."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TOOLS = ROOT / "web" / "node_modules" / ".bin"
SAMPLE = Path(__file__).with_name("sample.ts")

pytestmark = pytest.mark.interop


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False, timeout=120
    )


def test_a_client_compiles_in_strict_mode_with_the_generated_types(tmp_path: Path) -> None:
    made = run(TOOLS / "openapi-typescript", ROOT / "docs" / "openapi.json", "-o", tmp_path / "api.d.ts", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    shutil.copy(SAMPLE, tmp_path)
    strict = ("--strict", "--noEmit", "--exactOptionalPropertyTypes", "--target", "es2022", "--lib", "es2022,dom")
    checked = run(
        TOOLS / "tsc", *strict, "--moduleResolution", "bundler", "--module", "es2022", SAMPLE.name, cwd=tmp_path
    )
    assert checked.returncode == 0, checked.stdout
