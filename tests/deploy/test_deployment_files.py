"""The container image, the compose file and the systemd units, as far as they can be checked without an engine."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from sightline.config import Settings, load_settings
from sightline.config.addresses import read_networks
from sightline.config.loading import OTHER_VARIABLES
from sightline.http.server import TrustedProxies

ROOT: Final = Path(__file__).parents[2]
DEPLOY: Final = ROOT / "deploy"
FILES: Final = ("Containerfile", "compose.yaml", "sightline.service", "sightline-camera@.service")
CONTAINERFILE: Final = (DEPLOY / "Containerfile").read_text()


def instructions() -> list[tuple[str, str]]:
    """Instruction and argument of each line of the Containerfile."""
    joined = re.sub(r"\\\n", " ", CONTAINERFILE)
    lines = [line for line in joined.splitlines() if line and not line.startswith("#")]
    return [(line.partition(" ")[0], line.partition(" ")[2].strip()) for line in lines]


@pytest.mark.parametrize("name", FILES)
def test_the_settings_that_a_file_names_exist(name: str) -> None:
    named = set(re.findall(r"\bSIGHTLINE_[A-Z_]+[A-Z]\b", (DEPLOY / name).read_text()))
    known = {f"SIGHTLINE_{each.upper()}" for each in Settings.model_fields} | OTHER_VARIABLES | {"SIGHTLINE_API"}
    assert named
    assert named <= known


def test_the_compose_file_is_valid_by_the_compose_specification() -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    done = subprocess.run([*command, str(DEPLOY / "compose.yaml")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_services_of_the_compose_file_fit_together() -> None:
    compose: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    services: dict[str, dict[str, Any]] = compose["services"]
    build = services["sightline"]["build"]
    assert (DEPLOY / build["context"] / build["dockerfile"]).resolve() == DEPLOY / "Containerfile"
    for service in services.values():
        assert service.get("depends_on", {}).keys() <= services.keys()
        assert {each.partition(":")[0] for each in service.get("volumes", [])} <= compose["volumes"].keys()
        assert re.fullmatch(r"[\w./-]+:\d[\w.-]*", service.get("image", "built:1")), "a version, not latest"
    environment = dict(
        value for kind, text in instructions() if kind == "ENV" for value in re.findall(r"(\w+)=(\S+)", text)
    )
    first, last = environment["SIGHTLINE_VIDEO_UDP_PORT_MIN"], environment["SIGHTLINE_VIDEO_UDP_PORT_MAX"]
    tcp = environment["SIGHTLINE_VIDEO_TCP_PORT"]
    assert services["sightline"]["ports"] == [f"{first}-{last}:{first}-{last}/udp", f"{tcp}:{tcp}/tcp"]
    assert services["caddy"]["command"].endswith(f"sightline:{environment['SIGHTLINE_PORT']}")


def test_the_proxy_of_the_compose_file_is_trusted_wherever_docker_puts_it() -> None:
    """Each address of Docker's default pools; the server then counts callers by what the proxy says."""
    compose: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    value = compose["services"]["sightline"]["environment"]["SIGHTLINE_TRUSTED_PROXIES"]
    settings = load_settings({"SIGHTLINE_TRUSTED_PROXIES": value}).settings
    proxies = TrustedProxies(read_networks(settings.trusted_proxies))
    for address in ("172.17.0.2", "172.18.0.4", "172.31.0.2", "192.168.0.2", "192.168.240.3"):
        assert proxies.trusts(address), address
        assert proxies.caller([(b"x-forwarded-for", b"203.0.113.7")], (address, 1)) == ("203.0.113.7", 0)
    assert not proxies.trusts("203.0.113.7")


def test_the_image_follows_the_rules_of_dockerfile_linters() -> None:
    found = instructions()
    bases = [argument for kind, argument in found if kind == "FROM"]
    assert all(re.match(r"[\w./-]+:\d", base) for base in bases), "DL3006, DL3007: a version, not latest"
    runs = " && ".join(argument for kind, argument in found if kind == "RUN")
    assert "sudo" not in runs, "DL3004"
    for command in re.split(r"&&|\|\||;", runs):
        if re.search(r"\bpip install\b", command):
            assert "--no-cache-dir" in command, "DL3042"
            assert "--require-hashes" in command or "--no-deps" in command, "DL3013: versions are locked"
    assert not [argument for kind, argument in found if kind in ("ADD", "MAINTAINER")], "DL3020, DL4000"
    users = [argument for kind, argument in found if kind == "USER"]
    assert users, "DL3002: the last user is not root"
    assert users[-1] not in ("root", "0")
    kinds = [kind for kind, _ in found]
    assert kinds.count("HEALTHCHECK") == kinds[kinds.index("FROM", 1) :].count("CMD") == 1
    assert all(argument.startswith("/") for kind, argument in found if kind == "WORKDIR"), "DL3000"
    assert all(argument.startswith("[") for kind, argument in found if kind == "CMD"), (
        "DL3025: SIGTERM reaches the server"
    )
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert {".git", ".venv", "sightline-data"} <= set(ignored), "neither history nor keys get into the image"


@pytest.mark.interop
@pytest.mark.parametrize("name", [each for each in FILES if each.endswith(".service")])
def test_systemd_accepts_the_unit(name: str, tmp_path: Path) -> None:
    unit = tmp_path / name.replace("@", "@gate-north")
    program = tmp_path / "sightline"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    unit.write_text((DEPLOY / name).read_text().replace("/opt/sightline/bin/sightline", str(program)))
    command = ["systemd-analyze", "verify", "--man=no", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
