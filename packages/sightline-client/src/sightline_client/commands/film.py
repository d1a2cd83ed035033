"""Commands of an operator: publish, device, area, fleet."""

import re
from pathlib import Path
from typing import Annotated, Final

import typer

from sightline_client.commands.access import client, one_line_errors, own_wallet, own_workspace_id, server_address
from sightline_client.commands.client_settings import load_client_settings
from sightline_client.commands.options import (
    AREA_RADIUS_M,
    AsJson,
    Lat,
    Lng,
    PlaceCommand,
    Url,
    http_url,
    lat_option,
    lng_option,
)
from sightline_client.commands.printing import print_value

PANEL: Final = "Film"
"""Heading of `sightline --help`."""


app = typer.Typer()


@app.command(rich_help_panel=PANEL)
def publish(
    source: Annotated[
        str, typer.Argument(help="Video file (H.264 or VP8), rtsp://... URL of a camera, or /dev/video0.")
    ],
    whip: Annotated[
        str,
        typer.Option(
            callback=http_url,
            help="WHIP URL to publish to. On a command line other accounts of the machine can read it.",
            envvar="SIGHTLINE_WHIP_URL",
            show_envvar=True,
        ),
    ],
    seconds: Annotated[
        float | None, typer.Option(min=0, help="Stop after this many seconds; default: at Ctrl-C.")
    ] = None,
) -> None:
    """Publish a video file in a loop, or a camera, by WHIP without transcoding."""
    with one_line_errors():
        from sightline_client.video.publish import publish_source

    raise typer.Exit(publish_source(source, whip, seconds))


def _receiver(gps: str | None) -> str | None:
    if gps is not None and "://" in gps and re.fullmatch(r"gpsd://[^:/]+(:\d{1,5})?", gps, re.ASCII) is None:
        raise typer.BadParameter(
            f"{gps} is not a receiver. Write gpsd://HOST, gpsd://HOST:PORT or the path of a device."
        )
    return gps


@app.command(rich_help_panel=PANEL)
def device(
    api: Url = None,
    lat: Annotated[float | None, lat_option("Latitude of a fixed device.")] = None,
    lng: Annotated[float | None, lng_option("Longitude of a fixed device.")] = None,
    source: Annotated[
        str | None,
        typer.Option(
            envvar="SIGHTLINE_SOURCE",
            show_envvar=True,
            help="rtsp://... URL of a camera, /dev/video0, or a video file; default: the included clip.",
        ),
    ] = None,
    gps: Annotated[
        str | None,
        typer.Option(
            callback=_receiver, help="Position of a moving device: gpsd://HOST[:PORT], or a serial device with NMEA."
        ),
    ] = None,
    statements: Annotated[
        Path | None,
        typer.Option(help="Directory for the meter's signed statements of sessions in escrow; see `sightline claim`."),
    ] = None,
    online: Annotated[
        bool,
        typer.Option(
            "--online", help="Set the workspace ONLINE, also after a suspension; OFFLINE when the device ends."
        ),
    ] = False,
    decline_beyond: Annotated[
        float | None,
        typer.Option(min=0, help="Decline sessions of places farther away than this many metres; default: none."),
    ] = None,
) -> None:
    """Act as an operator's device: send heartbeats, start assigned sessions, publish video without transcoding.

    Give --lat and --lng, or --gps. The API key is that of SIGHTLINE_API_KEY or of the settings file.
    The log is on stderr, one JSON line per event.
    """
    import anyio

    from sightline_client.device.run import DeviceOptions, check_source, run_device
    from sightline_client.operator import Position

    with one_line_errors():
        from sightline_client.video.assets import clip_path

        known = load_client_settings()
    if not known.api_key:
        typer.echo(
            "SIGHTLINE_API_KEY is not set. Set it to an API key of the operator's workspace; "
            "`sightline signup --role SUPPLIER` creates one.",
            err=True,
        )
        raise typer.Exit(1)
    if gps is None and (lat is None or lng is None):
        typer.echo("The device has no position. Give --lat and --lng, or --gps.", err=True)
        raise typer.Exit(2)
    with one_line_errors():
        url = server_address(api, known)
    place = None if gps is not None or lat is None or lng is None else Position(lat=lat, lng=lng)
    chosen = source if source is not None else str(clip_path())
    if (code := check_source(chosen)) != 0:  # a device without video would take sessions that it cannot film
        raise typer.Exit(code)
    options = DeviceOptions(
        api_url=url,
        api_key=known.api_key,
        source=chosen,
        place=place,
        gps=gps,
        statements=statements,
        decline_beyond_m=decline_beyond,
        is_online=online,
    )
    with one_line_errors():
        raise typer.Exit(anyio.run(run_device, options))


def _area_radius(metres: int) -> int:
    low, high = AREA_RADIUS_M
    if metres < low:
        raise typer.BadParameter(f"{metres} m must be at least {low}.")
    if metres > high:
        raise typer.BadParameter(f"{metres} m must be at most {high}.")
    return metres


@app.command(rich_help_panel=PANEL, cls=PlaceCommand)
def area(
    lat: Lat,
    lng: Lng,
    radius: Annotated[int, typer.Option(callback=_area_radius, help="Radius in metres, 50 to 100000.")] = 2_000,
    api: Url = None,
    as_json: AsJson = False,
) -> None:
    """Set the area in which the key's workspace is offered sessions."""
    with one_line_errors(as_json=as_json), client(api, needs_key=True) as sl:
        workspace = sl.workspaces.update(
            own_workspace_id(sl), coverage_lat=lat, coverage_lng=lng, coverage_radius_meters=radius
        )
    print_value(workspace, as_json, f"{workspace.slug} is offered sessions within {radius} m of {lat}, {lng}")


@app.command(rich_help_panel=PANEL)
def fleet(
    file: Annotated[
        Path, typer.Argument(exists=True, dir_okay=False, help="CSV with the columns slug, lat, lng, source.")
    ],
    out: Annotated[Path, typer.Option(help="Directory for one environment file per camera; they hold keys.")] = Path(
        "cameras"
    ),
    api: Url = None,
    online: Annotated[bool, typer.Option("--online", help="Also set the workspaces ONLINE.")] = False,
    as_json: AsJson = False,
) -> None:
    """Make an operator workspace and a key for each camera of a CSV file, owned by SIGHTLINE_WALLET_KEY.

    It may be run again: what exists is kept, what changed is applied.
    """
    with one_line_errors(as_json=as_json), client(api) as sl:
        from sightline_client.commands.fleet import run_fleet

        raise typer.Exit(run_fleet(sl, own_wallet(), file, out, is_online=online, as_json=as_json))
