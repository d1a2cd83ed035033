"""`sightline fleet`: the guide's file makes a workspace, a key and an environment file for each camera."""

import contextlib
import os
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Final

import httpx2
import pytest

from sightline.cli.fleet import Camera, Fleet, FleetFileError, read_cameras
from sightline.system.ids import SystemIds
from sightline_client import Sightline
from sightline_client.models import ApiKey
from sightline_client.wallet import LocalWallet
from tests.e2e.conftest import running_server
from tests.e2e.server import Server

__all__ = ["running_server"]

GUIDE: Final = (Path(__file__).parents[2] / "docs" / "guides" / "cameras.md").read_text()


def guide_file(directory: Path) -> Path:
    """Write the CSV file of the guide."""
    (text,) = re.findall(r"```csv\n(.*?)```", GUIDE, re.DOTALL)
    path = directory / "cameras.csv"
    path.write_text(text)
    return path


def fleet(server: Server, wallet: LocalWallet, directory: Path) -> "subprocess.CompletedProcess[str]":
    """Run the guide's command in a directory."""
    (line,) = re.findall(r"^sightline (fleet .*)$", GUIDE, re.MULTILINE)
    command = line.replace("/etc/sightline/cameras", str(directory / "out")).split()
    env = os.environ | {"SIGHTLINE_URL": server.url, "SIGHTLINE_WALLET_KEY": wallet.private_key}
    return subprocess.run(
        [sys.executable, "-m", "sightline.cli", *command],
        env=env, cwd=directory, capture_output=True, text=True, check=False, timeout=90,
    )  # fmt: skip


@pytest.mark.timeout(180)
def test_the_guides_command_makes_what_each_camera_needs_and_may_be_run_again(
    running_server: Server, tmp_path: Path
) -> None:
    wallet, file, out = LocalWallet.create(), guide_file(tmp_path), tmp_path / "out"
    first = fleet(running_server, wallet, tmp_path)
    assert first.returncode == 0, first.stderr
    (said,) = re.findall(r"```\n(gate-north: .*?)```", GUIDE, re.DOTALL)
    assert first.stdout.replace(str(out), "/etc/sightline/cameras") == said

    made = out / "gate-south.env"
    assert stat.S_IMODE(made.stat().st_mode) == 0o600
    shell = f"set -a; . {made}; exec {sys.executable} -c 'import os; print(os.environ)'"
    printed = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=True).stdout
    assert "rtsp://user:password@192.0.2.21/stream1" in printed
    key = re.findall(r"SIGHTLINE_API_KEY='(.*)'", made.read_text())[0]
    with Sightline(running_server.url, key) as api:
        workspace = api.workspaces.get(str(api.me().workspace_id))
    assert (workspace.slug, workspace.availability_state, workspace.device_kind) == ("gate-south", "ONLINE", "PTZ")
    assert (workspace.coverage_lat, workspace.coverage_radius_meters) == (52.51862, 150)

    # A run that was interrupted before the second file was written, and a row that changed since.
    before = (out / "gate-north.env").read_text()
    made.unlink()
    file.write_text(file.read_text().replace("52.520008", "52.520500"))
    again = fleet(running_server, wallet, tmp_path)
    assert [line.partition(": /")[0] for line in again.stdout.splitlines()] == [
        "gate-north: workspace kept, key kept",
        "gate-south: workspace kept, key made",
    ]
    assert (out / "gate-north.env").read_text() == before.replace("52.520008", "52.520500")

    # Another wallet cannot take the slugs; its own camera is made all the same.
    with file.open("a") as rows:
        rows.write("harbour,1,2,clip.mp4,,\n")
    (tmp_path / "out").rename(tmp_path / "first")
    other = fleet(running_server, LocalWallet.create(), tmp_path)
    assert other.returncode == 1
    assert [line.partition(" (")[0] for line in other.stderr.splitlines()] == [
        "gate-north: 409 CONFLICT",
        "gate-south: 409 CONFLICT",
    ]
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["harbour.env"]


class KilledError(BaseException):
    """The end of a run at one place."""


def test_a_run_killed_between_making_a_key_and_writing_it_leaves_no_unused_key(
    running_server: Server, tmp_path: Path
) -> None:
    wallet, row = LocalWallet.create(), Camera(slug="killed-run", lat=1.0, lng=2.0, source="clip.mp4")

    def kill_at_the_answer(response: httpx2.Response) -> None:
        if response.request.method == "POST" and response.request.url.path.endswith("/api-keys"):
            raise KilledError

    def make(http: httpx2.Client) -> list[ApiKey]:
        """Run once, and return the keys of the workspace that still work."""
        with http, Sightline(running_server.url, http=http) as api:
            api.auth.sign_in(wallet)
            with contextlib.suppress(KilledError):
                Fleet(api, wallet, SystemIds(), tmp_path, is_online=False).make([row])
            (workspace,) = api.workspaces.list()
            api.auth.select(workspace.id)
            return [key for key in api.keys.list(workspace.id) if key.revoked_at is None]

    (lost,) = make(httpx2.Client(event_hooks={"response": [kill_at_the_answer]}))
    assert "SIGHTLINE_API_KEY" not in (tmp_path / "killed-run.env").read_text()
    (kept,) = make(httpx2.Client())
    assert kept.key_id != lost.key_id
    assert f"SIGHTLINE_API_KEY='{kept.prefix}" in (tmp_path / "killed-run.env").read_text()
    (again,) = make(httpx2.Client())
    assert again.key_id == kept.key_id


def test_each_bad_value_is_one_line_with_its_place_and_without_the_password(tmp_path: Path) -> None:
    file = tmp_path / "bad.csv"
    file.write_text(
        "slug,lat,lng,source,kind\n"
        "Gate,1,2,rtsp://u:secret@h/1,\n"
        "gate,91,x,rtsp://u:sec'ret@h/1,\n"
        "door,1,2,clip.mp4,PHONE\n"
        "yard,1,2\n"
        "door,1,nan,clip.mp4,FIXED\n"
        "lift,1,2,clip.mp4,\n"
        "lift,1,2,clip.mp4,\n"
    )
    with pytest.raises(FleetFileError) as caught:
        read_cameras(file)
    assert [line.removeprefix(f"{file} ") for line in caught.value.lines] == [
        "line 2: slug 'Gate' is not 3 to 32 lower-case letters, digits and hyphens",
        "line 3: lat '91' is not a number from -90 to 90",
        "line 3: lng 'x' is not a number from -180 to 180",
        "line 3: source is empty, or contains a quote or a line break",
        "line 4: kind 'PHONE' is not FIXED or PTZ",
        "line 5: it has more or fewer values than the first line has columns",
        "line 6: lng 'nan' is not a number from -180 to 180",
        "line 8: slug lift is also in line 7",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("slug,lat,lng\n", "the column source is missing"),
        ("slug,lat,lng,source,hight\n", "unknown column hight. Known are slug, lat, lng, source, radius, kind"),
        ("slug,lat,lng,source\n", "no cameras"),
        ("\udcff", "not a CSV file in UTF-8"),
    ],
)
def test_a_file_without_the_columns_is_refused_as_a_whole(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "bad.csv"
    file.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(FleetFileError, match=re.escape(said)):
        read_cameras(file)
