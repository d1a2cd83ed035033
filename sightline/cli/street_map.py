"""The `sightline map` commands."""

import os
import shutil
from pathlib import Path
from typing import Annotated

import typer

from sightline.bootstrap.maintenance.error_lines import print_error
from sightline.cli.options import ConfigFile, DataDir, settings_of
from sightline_client.commands.options import AsJson

app = typer.Typer(no_args_is_help=True)


@app.callback()
def street_map() -> None:
    """Streets for the console's map."""


@app.command(name="get-ready")
def get_ready(
    file: Annotated[Path, typer.Argument(help="PMTiles file in the schema of the Protomaps basemap.")],
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: ConfigFile = None,
) -> None:
    """Check a file of streets, and install it. The console shows them without any call to another server."""
    from sightline.cli.operations import print_json
    from sightline.http.console.streets import StreetsError, read_streets

    target = settings_of(config, as_json=as_json, data_dir=data_dir).streets_path
    draft = target.with_name(f"{target.name}.{os.getpid()}.new")
    try:
        streets = read_streets(file)
        if not (target.exists() and file.samefile(target)):
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                shutil.copyfile(file, draft)
                read_streets(draft)
                draft.replace(target)
            finally:
                draft.unlink(missing_ok=True)
    except (OSError, StreetsError) as error:
        print_error(f"Nothing was installed: {error}", code=type(error).__name__, as_json=as_json)
        raise typer.Exit(1) from None
    if as_json:
        print_json(
            {
                "path": str(target),
                "sizeBytes": streets.size,
                "minZoom": streets.min_zoom,
                "maxZoom": streets.max_zoom,
                "bounds": [streets.west, streets.south, streets.east, streets.north],
                "layers": streets.layers,
                "attribution": streets.attribution,
            }
        )
        return
    typer.echo(
        f"Streets are ready in {target} ({streets.size / 1_000_000:.1f} MB).\n"
        f"Area: {streets.south:.4f}, {streets.west:.4f} to {streets.north:.4f}, {streets.east:.4f}; zoom "
        f"{streets.min_zoom} to {streets.max_zoom}. Layers: {', '.join(streets.layers)}.\n"
        f"Credit on the map: {streets.attribution or 'none in the file; set SIGHTLINE_MAP_ATTRIBUTION'}.\n"
        "Consoles show them when they are opened next; the server need not be restarted."
    )


@app.command()
def postcodes(
    files: Annotated[list[Path], typer.Argument(help="Postcodes of GeoNames: XX.zip or XX.txt, one of each country.")],
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: ConfigFile = None,
) -> None:
    """Install postcodes, so that the console finds places by them. Replaces those that were installed before."""
    from sightline.cli.operations import print_json
    from sightline.http.console.postcodes import packed, read_postcodes
    from sightline.http.console.streets import StreetsError

    target = settings_of(config, as_json=as_json, data_dir=data_dir).postcodes_path
    draft = target.with_name(f"{target.name}.{os.getpid()}.new")
    try:
        found = read_postcodes(files)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            draft.write_bytes(packed(found))
            draft.replace(target)
        finally:
            draft.unlink(missing_ok=True)
    except (OSError, StreetsError) as error:
        print_error(f"Nothing was installed: {error}", code=type(error).__name__, as_json=as_json)
        raise typer.Exit(1) from None
    if as_json:
        print_json({"path": str(target), "postcodes": len(found)})
        return
    typer.echo(f"{len(found):,} postcodes are ready in {target}. Consoles find them when they are opened next.")
