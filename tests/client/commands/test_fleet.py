"""`sightline fleet`: the guide's file makes a workspace, a key and an environment file for each camera."""

import contextlib
import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Final

import httpx2
import pytest

from sightline_client import Sightline, SightlineError
from sightline_client.commands.fleet import Camera, Fleet, FleetFileError, read_cameras
from sightline_client.models import ApiKey
from sightline_client.wallet import LocalWallet
from tests.e2e.server import Server

GUIDE: Final = (Path(__file__).parents[3] / "docs" / "guides" / "cameras.md").read_text()


def guide_file(directory: Path) -> Path:
    """Write the CSV file of the guide."""
    (text,) = re.findall(r"```csv\n(.*?)```", GUIDE, re.DOTALL)
    path = directory / "cameras.csv"
    path.write_text(text)
    return path


def fleet(server: Server, wallet: LocalWallet, directory: Path, *extra: str) -> "subprocess.CompletedProcess[str]":
    """Run the guide's command in a directory."""
    (line,) = re.findall(r"^sightline (fleet .*)$", GUIDE, re.MULTILINE)
    command = line.replace("/etc/sightline/cameras", str(directory / "out")).split()
    env = os.environ | {"SIGHTLINE_URL": server.url, "SIGHTLINE_WALLET_KEY": wallet.private_key}
    return subprocess.run(
        [sys.executable, "-m", "sightline_client", *command, *extra],
        env=env, cwd=directory, capture_output=True, text=True, check=False, timeout=90,
    )  # fmt: skip


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
        "gate-north: workspace kept, ONLINE, key kept",
        "gate-south: workspace kept, ONLINE, key made",
    ]
    assert (out / "gate-north.env").read_text() == before.replace("52.520008", "52.520500")

    # Another wallet cannot take the slugs; its own camera is made all the same.
    with file.open("a") as rows:
        rows.write("harbour,1,2,clip.mp4,,\n")
    (tmp_path / "out").rename(tmp_path / "first")
    other = fleet(running_server, LocalWallet.create(), tmp_path, "--json")
    assert other.returncode == 1
    refused = [json.loads(line) for line in other.stderr.splitlines()]
    assert [(each["slug"], each["code"]) for each in refused] == [
        ("gate-north", "CONFLICT"),
        ("gate-south", "CONFLICT"),
    ]
    [harbour] = [json.loads(line) for line in other.stdout.splitlines()]
    assert (harbour["slug"], harbour["workspace"], harbour["key"]) == ("harbour", "made", "made")
    assert Path(harbour["file"]).name == "harbour.env"
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
                Fleet(api, wallet, tmp_path, is_online=False).make([row])
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
        "yard,1,2,clip.mp4\n"
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
        "line 3: source is empty, or contains a quote, a line break or another control character",
        "line 4: kind 'PHONE' is not FIXED or PTZ",
        "line 5: it has 1 fewer values than the first line has columns",
        "line 6: lng 'nan' is not a number from -180 to 180",
        "line 8: slug lift is also in line 7",
    ]


def test_a_fleet_takes_the_radii_that_area_takes(tmp_path: Path) -> None:
    file = tmp_path / "radius.csv"
    file.write_text("slug,lat,lng,source,radius\ngate,1,2,clip.mp4,10\nyard,1,2,clip.mp4,50\n")
    with pytest.raises(FleetFileError) as caught:
        read_cameras(file)
    assert caught.value.lines == [f"{file} line 2: radius '10' is not a number from 50 to 100000"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("slug,lat,lng\n", "the column source is missing"),
        (
            "slug,lat,lng,source,hight\n",
            "line 1: unknown column 'hight'. Known are slug, lat, lng, source, radius, kind",
        ),
        ("slug,lat,lng,source\n", "no cameras"),
        ("slug,lat,lng,source,lat\n", "line 1: the column lat is there twice"),
        ("slug,lat,lng,source\ngate,1,2,\udcff", "line 2, byte 10: not in UTF-8"),
        ("slug,lat,lng,source\ngate,1,2,a\0b", "line 2, byte 11: a NUL byte"),
        ('slug,lat,lng,source\ngate,1,2,a\nyard,1,2,"a\nb,1,2,c\n', "line 3: a quote is not closed"),
        ("slug,lat,lng,source\ngate,1,2," + "x" * 200_000, "line 2: field larger than field limit"),
        ("slug,lat,lng,source\n" + "gate,1,2,a\n" * 10_002, "line 10002: more than 10000 cameras"),
        ("slug,lat,lng,source\n" + "x" * (16 << 20), "more than 16 MB"),
    ],
)
def test_a_file_without_the_columns_is_refused_as_a_whole(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "bad.csv"
    file.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(FleetFileError, match=re.escape(said)):
        read_cameras(file)


HOSTILE_VALUES: Final = [
    "../etc/cron,1,2,a",
    "..,1,2,a",
    "=cmd|' /C calc'!A0,1,2,a",
    "gate,1e308,2,a",
    "gate,inf,2,a",
    "gate,nan,2,a",
    "gate,1_0,2,a",
    "gate,\uff11,2,a",
    "gate,1,2,rtsp://h/\x1b]0;x\x07",
    "gate,1,2,rtsp://h/\u2028x",
    "gate,1,2," + "x" * 2_001,
]


@pytest.mark.parametrize("row", HOSTILE_VALUES)
def test_a_hostile_value_is_refused_with_its_line_and_column(tmp_path: Path, row: str) -> None:
    file = tmp_path / "bad.csv"
    file.write_text(f"slug,lat,lng,source\n{row}\n", encoding="utf-8")
    with pytest.raises(FleetFileError) as caught:
        read_cameras(file)
    (line,) = caught.value.lines
    assert re.match(rf"{re.escape(str(file))} line 2: (slug|lat|source) ", line)
    assert line.isprintable()


@pytest.mark.parametrize(
    "text",
    [
        "slug,lat,lng,source\ngate,1,rtsp://u:hunter2@h/1,2\n",
        "slug,lat,lng,source\nrtsp://u:hunter2@h/1,1,2,gate\n",
        "slug,lat,lng,source,kind\ngate,1,2,a,rtsp://u:hunter2@h/1\n",
        "gate,1,2,rtsp://u:hunter2@h/1\n",
        "slug,lat,lng,source\ngate,1,2,a,rtsp://u:hunter2@h/1\n",
        'slug,lat,lng,source\ngate,1,2,"rtsp://u:hunter2@h/1\n',
    ],
    ids=["lng", "slug", "kind", "no first line", "one value more", "quote"],
)
def test_a_source_in_the_wrong_column_is_not_printed(tmp_path: Path, text: str) -> None:
    file = tmp_path / "shifted.csv"
    file.write_text(text)
    with pytest.raises(FleetFileError) as caught:
        read_cameras(file)
    assert "hunter2" not in str(caught.value)


def test_a_file_of_problems_is_reported_by_its_first_fifty(tmp_path: Path) -> None:
    file = tmp_path / "bad.csv"
    file.write_text("slug,lat,lng,source\n" + "x,1,2,a\n" * 9_000)
    with pytest.raises(FleetFileError) as caught:
        read_cameras(file)
    assert len(caught.value.lines) == 51
    assert caught.value.lines[-1] == f"{file}: 8950 more problems"


def test_a_run_that_the_server_stops_says_how_many_cameras_are_complete(
    running_server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse_the_second(request: httpx2.Request) -> None:
        if request.method == "POST" and b"lost-two" in request.content:
            raise httpx2.ConnectError("the server is gone", request=request)

    rows = [Camera(slug=f"lost-{name}", lat=1.0, lng=2.0, source="rtsp://u:hunter2@h/1") for name in ("one", "two")]
    with (
        httpx2.Client(event_hooks={"request": [refuse_the_second]}) as http,
        Sightline(running_server.url, http=http) as api,
    ):
        wallet = LocalWallet.create()
        api.auth.sign_in(wallet)
        with pytest.raises(SightlineError):
            Fleet(api, wallet, tmp_path, is_online=False).make(rows)
    said = capsys.readouterr()
    assert said.err == "Stopped at lost-two: 1 of 2 cameras are complete. Run the command again.\n"
    assert "hunter2" not in said.out + said.err
