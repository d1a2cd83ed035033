"""The `sightline` command. Each command imports what it needs when it runs, so that `--help` is quick."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from sightline.config import Settings

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__)

DataDir = Annotated[Path | None, typer.Option(help="Where everything is kept; default: SIGHTLINE_DATA_DIR")]


def _settings(**given: object) -> "Settings":
    """The settings of the environment, with what the command line says in their place.

    Raises:
        typer.Exit: A setting is wrong; each is named on stderr.
    """
    from pydantic import ValidationError

    from sightline.config import Settings

    try:
        return Settings(**{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]
    except ValidationError as error:
        for wrong in error.errors(include_url=False, include_input=False):
            name = "SIGHTLINE_" + ".".join(str(part) for part in wrong["loc"]).upper() if wrong["loc"] else "settings"
            typer.echo(f"{name}: {wrong['msg'].removeprefix('Value error, ')}", err=True)
        raise typer.Exit(2) from None


@app.command()
def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0 takes any free one")] = None,
    internal_port: Annotated[int | None, typer.Option(help="Port of the internal listener")] = None,
    data_dir: DataDir = None,
) -> None:
    """Run the server until SIGTERM or Ctrl-C. Prints `ready URL` when it accepts calls."""
    from sightline.bootstrap.run import run_server

    raise typer.Exit(run_server(_settings(host=host, port=port, internal_port=internal_port, data_dir=data_dir)))


@app.command()
def config() -> None:
    """Print every setting with its present value; secrets are masked."""
    from rich.console import Console
    from rich.table import Table

    from sightline.config import Settings

    settings = _settings()
    table = Table("variable", "value", "what it is")
    for name, field in Settings.model_fields.items():
        table.add_row(f"SIGHTLINE_{name.upper()}", str(getattr(settings, name)), field.description or "")
    Console(width=None if sys.stdout.isatty() else 200).print(table)


@app.command()
def faucet(
    address: Annotated[str, typer.Argument(help="Wallet address")],
    micro_usdc: Annotated[int, typer.Argument(min=1, help="Amount in micro-USDC")],
    data_dir: DataDir = None,
) -> None:
    """Give a wallet test USDC, and the native coin that an approval costs. Embedded chain only, of a running server."""
    from sightline.bootstrap.faucet import run_faucet

    raise typer.Exit(run_faucet(_settings(data_dir=data_dir), address, micro_usdc))


@app.command()
def publish(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="An H.264 video file")],
    whip: Annotated[str, typer.Option(help="Where to publish")],
    seconds: Annotated[float | None, typer.Option(help="Stop after so long; default: until Ctrl-C")] = None,
) -> None:
    """Publish a video file by WHIP, over and over, as a camera would."""
    from sightline.video.publish import publish_file

    raise typer.Exit(publish_file(file, whip, seconds))


@app.command()
def device(
    api: Annotated[str, typer.Option(help="URL of the server")],
    lat: Annotated[float, typer.Option(help="Where the device is: latitude")],
    lng: Annotated[float, typer.Option(help="Where the device is: longitude")],
    clip: Annotated[
        Path | None, typer.Option(help="What it films; default: the clip that ships with Sightline")
    ] = None,
) -> None:
    """Act as an operator's device: heartbeats, assignments, publishing. The API key comes from SIGHTLINE_API_KEY."""
    import trio

    from sightline.cli.device import DeviceOptions, run_device
    from sightline.system.logs import configure_logs
    from sightline.video.assets import clip_path

    key = os.environ.get("SIGHTLINE_API_KEY")
    if not key:
        typer.echo("SIGHTLINE_API_KEY is not set", err=True)
        raise typer.Exit(2)
    configure_logs()
    film = clip if clip is not None else clip_path()
    trio.run(run_device, DeviceOptions(api_url=api, api_key=key, lat=lat, lng=lng, clip=film))


@app.command()
def settlements(data_dir: DataDir = None) -> None:
    """List the settlements of a running server that are not confirmed, and why."""
    from sightline.cli.operations import print_settlements

    raise typer.Exit(print_settlements(_settings(data_dir=data_dir).data_dir))


@app.command()
def actors(
    data_dir: DataDir = None,
    revive: Annotated[str | None, typer.Option(help="KIND/ID of a parked actor to give another chance")] = None,
) -> None:
    """Show what the actors of a running server are doing and which are parked; revive one."""
    from sightline.cli.operations import print_actors, revive_actor

    place = _settings(data_dir=data_dir).data_dir
    raise typer.Exit(print_actors(place) if revive is None else revive_actor(place, revive))


@app.command()
def demo(
    keep: Annotated[bool, typer.Option("--keep", help="Leave the server running and print how to go on")] = False,
    data_dir: Annotated[
        Path | None, typer.Option(help="A new directory for the demo; default: a temporary one")
    ] = None,
    frame: Annotated[Path, typer.Option(help="Where to save the first frame")] = Path("sightline-frame.jpg"),
) -> None:
    """Do the main job end to end on real parts, check every amount, and say what was seen."""
    from sightline.cli.demo import run_demo

    raise typer.Exit(run_demo(keep=keep, data_dir=data_dir, frame_path=frame))


@app.command()
def simulate(
    seed: Annotated[int, typer.Option(help="The world to play, or the first of --seeds")] = 0,
    seeds: Annotated[int, typer.Option(min=1, help="How many worlds to play")] = 1,
    scenario: Annotated[str | None, typer.Option(help="Play this one; default: each seed picks its own")] = None,
    hours: Annotated[float | None, typer.Option(help="Play one long day of so many virtual hours instead")] = None,
    operators: Annotated[int, typer.Option(min=1, help="Operators of the long day")] = 200,
    sessions: Annotated[int, typer.Option(min=1, help="Sessions of the long day")] = 2000,
    processes: Annotated[int, typer.Option(min=0, help="Worlds at once; 0: one per processor")] = 0,
) -> None:
    """Play whole servers on virtual time with faults, and check every promise after every step."""
    from sightline.sim.command import SimulateOptions, run_simulation

    options = SimulateOptions(
        seed=seed,
        seeds=seeds,
        scenario=scenario,
        hours=hours,
        operators=operators,
        sessions=sessions,
        processes=processes,
    )
    raise typer.Exit(run_simulation(options, typer.echo))


def main() -> None:
    """Entry point of the command."""
    app()
