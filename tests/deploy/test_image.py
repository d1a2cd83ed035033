"""The built image (scripts/nightly_image.sh) runs as its user: the demo, the compose file's server, the health check.

The containers have a root file system, mounts and a user of their own, and the network of the host: without a bridge
that is all that a machine without an engine gives.
"""

import json
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import trio
import yaml

from sightline.storage.embedded.postgres_child import SOCKET_NAME
from tests.nemesis.parts import ROLE, ExternalPostgres

pytestmark = pytest.mark.image

ROOT: Final = Path(__file__).parents[2]
IMAGE: Final = ROOT / ".interop" / "image"
UID: Final = 10001
READY_S: Final = 240
COMPRESSED_MAX: Final = 400_000_000


def buildah(*arguments: str) -> str:
    store = ["--root", str(IMAGE / "store"), "--runroot", str(IMAGE / "run"), "--storage-driver", "overlay"]
    done = subprocess.run(["buildah", *store, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def facts() -> dict[str, Any]:
    """What the image says of itself."""
    found: dict[str, Any] = json.loads(buildah("inspect", "--type", "image", "localhost/sightline"))["Docker"]["config"]
    return found


class Container:
    """A container of the image: its root file system, entered as its user with its environment."""

    def __init__(self, root: Path, env: dict[str, str]) -> None:
        self.root = root
        self.env = dict(each.split("=", 1) for each in facts()["Env"]) | env

    def command(self, *words: str) -> list[str]:
        inside = ["env", "-i", *(f"{name}={value}" for name, value in self.env.items()), *words]
        enter = f"cd {shlex.quote(facts()['WorkingDir'])} && exec {shlex.join(inside)}"
        return ["chroot", f"--userspec={UID}:{UID}", str(self.root), "/bin/sh", "-c", enter]

    def run(self, *words: str, timeout: float = 60) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(self.command(*words), capture_output=True, text=True, check=False, timeout=timeout)

    @contextmanager
    def running(self, *words: str) -> Iterator["subprocess.Popen[bytes]"]:
        log = self.root / "server.log"
        with log.open("wb") as file:
            process = subprocess.Popen(self.command(*words), stdout=file, stderr=file)
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(60)
            finally:
                process.kill()
                sys.stdout.write(log.read_text()[-2_000:])


@contextmanager
def a_container(**env: str) -> Iterator[Container]:
    name = buildah("from", "--pull-never", "localhost/sightline")
    try:
        root = Path(buildah("mount", name))
        for kind, path in (("proc", "proc"), ("devtmpfs", "dev"), ("tmpfs", "dev/shm"), ("tmpfs", "tmp")):
            (root / path).mkdir(exist_ok=True)
            subprocess.run(["mount", "-t", kind, kind, str(root / path)], check=True)
        try:
            (root / "tmp").chmod(0o1777)
            yield Container(root, env)
        finally:
            for path in ("tmp", "dev/shm", "dev", "proc"):
                subprocess.run(["umount", "--lazy", str(root / path)], check=True)
    finally:
        buildah("rm", name)


def until_ready(process: "subprocess.Popen[bytes]", url: str) -> None:
    """Poll readiness; a server that ends says why."""
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        assert process.poll() is None, "the server has ended"
        try:
            answer = httpx.get(url)
        except httpx.TransportError:
            answer = None
        if answer is not None and answer.status_code == 200:
            return
        time.sleep(0.2)
    raise AssertionError("not ready")


def uid_of(process: "subprocess.Popen[bytes]") -> int:
    return int(re.findall(r"^Uid:\s+(\d+)", Path(f"/proc/{process.pid}/status").read_text(), re.MULTILINE)[0])


def test_the_demo_runs_inside() -> None:
    with a_container() as container:
        done = container.run("sightline", "demo", timeout=600)
        sys.stdout.write(done.stdout[-2_000:])
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_default_command_serves_as_its_user_and_the_health_check_agrees() -> None:
    found = facts()
    kind, *check = found["Healthcheck"]["Test"]
    assert (kind, found["User"], found["Cmd"]) == ("CMD", "sightline", ["sightline", "serve"])
    with a_container() as container:
        assert container.run("id", "-u").stdout.strip() == str(UID)
        assert container.run(*check).returncode != 0
        with container.running(*found["Cmd"]) as process:
            until_ready(process, "http://127.0.0.1:8081/readyz")
            assert uid_of(process) == UID
            assert container.run(*check).returncode == 0
            assert httpx.get("http://127.0.0.1:8080/manual/", follow_redirects=True).status_code == 200
            data = container.root / "var" / "lib" / "sightline" / "data"
            assert (data.stat().st_uid, data.stat().st_mode & 0o077) == (UID, 0)


def test_the_server_of_the_compose_file_starts_with_its_values(data_directory: Path) -> None:
    """The same settings, with the addresses of a Postgres and a network that exist here."""
    service = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())["services"]["sightline"]
    assert service["volumes"] == [f"sightline:{next(iter(facts()['Volumes']))}"]
    values = {"DOMAIN": "video.example", "POSTGRES_PASSWORD": "secret", "ADVERTISED_ADDRESS": "127.0.0.1"}
    fill = re.compile(r"\$\{(\w+):\?\}")
    env = {name: fill.sub(lambda match: values[match[1]], text) for name, text in service["environment"].items()}
    data_directory.chmod(0o711)
    (data_directory / "postgres").mkdir(mode=0o700)
    postgres = ExternalPostgres(data_directory / "postgres")
    with ExitStack() as stack:
        stack.callback(postgres.end)
        postgres.start()
        trio.run(postgres.make_database)
        socket = postgres.layout.socket_directory
        socket.chmod(0o755)
        (socket / SOCKET_NAME).chmod(0o777)
        container = stack.enter_context(a_container())
        (mounted := container.root / "postgres").mkdir()
        subprocess.run(["mount", "--bind", str(socket), str(mounted)], check=True)
        stack.callback(subprocess.run, ["umount", "--lazy", str(mounted)], check=True)
        url = f"postgresql://{ROLE}@/{ROLE}?host=/postgres"
        container.env |= env | {"SIGHTLINE_DATABASE_URL": url}
        process = stack.enter_context(container.running("sightline", "serve"))
        until_ready(process, "http://127.0.0.1:8081/readyz")
        assert not (container.root / "var/lib/sightline/data/postgres").exists(), (
            "it does not run a Postgres of its own"
        )
        config = httpx.get("http://127.0.0.1:8080/api/v1/config").json()
        assert "https://video.example" in json.dumps(config)


def test_the_image_is_small(tmp_path: Path) -> None:
    """Compressed, as a registry stores and sends it."""
    buildah("push", "--quiet", "--compression-format", "gzip", "localhost/sightline", f"dir:{tmp_path}")
    compressed = sum(each.stat().st_size for each in tmp_path.iterdir())
    [listed] = json.loads(buildah("images", "--json", "localhost/sightline"))
    sys.stdout.write(f"{listed['size']}, compressed {compressed / 1e6:.0f} MB\n")
    assert compressed < COMPRESSED_MAX
