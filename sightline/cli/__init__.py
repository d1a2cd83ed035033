"""Commands of a host and of a developer. The client's command `sightline` finds them by an entry point."""

# Each command imports its modules when it runs, so that `--help` is fast.
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from sightline.bootstrap.importing import importing
from sightline.cli import admin, chain, secrets, street_map
from sightline.cli.options import DEVELOP, HOST, ConfigFile, DataDir, load, settings_of
from sightline_client.commands import application
from sightline_client.commands.access import one_line_errors
from sightline_client.commands.options import (
    USDC,
    AsJson,
    NumberCommand,
    SessionId,
    lat_option,
    lng_option,
    usdc_argument,
)

app = typer.Typer()
app.add_typer(admin.app, name="admin", rich_help_panel=HOST)
app.add_typer(chain.app, name="chain", rich_help_panel=HOST)
app.add_typer(secrets.app, name="secrets", rich_help_panel=HOST)
app.add_typer(street_map.app, name="map", rich_help_panel=HOST)


@app.command(rich_help_panel=HOST)
def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65_535, help="Port to listen on; 0 chooses a free one.")
    ] = None,
    internal_port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65_535, help="Port of the internal listener (metrics, readiness); 0 chooses a free one."
        ),
    ] = None,
    data_dir: DataDir = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Server processes on this machine; each uses about one processor.")
    ] = None,
    tls: Annotated[
        str | None, typer.Option(help="auto: TLS for phones on the same network, by an own authority at /ca.crt.")
    ] = None,
    config: ConfigFile = None,
) -> None:
    """Run the server until SIGTERM or Ctrl-C. Prints `ready URL` on stdout when it accepts calls."""
    with importing():
        from sightline.bootstrap.run import run_server

    if tls not in (None, "auto"):
        raise typer.BadParameter("only `auto` exists; for files set SIGHTLINE_TLS_CERT and SIGHTLINE_TLS_KEY")
    wanted: dict[str, Any] = {
        "host": host,
        "port": port,
        "internal_port": internal_port,
        "data_dir": data_dir,
        "workers": workers,
    }
    settings = settings_of(config, **wanted, tls_auto=True if tls == "auto" else None)
    raise typer.Exit(run_server(settings))


@app.command(rich_help_panel=HOST)
def config(
    is_set: Annotated[bool, typer.Option("--set", help="Only the settings that are set.")] = False,
    as_json: AsJson = False,
    config: ConfigFile = None,
) -> None:
    """Print every setting with its value, where the value comes from, and what it means. Secrets are masked."""
    from sightline.cli.operations import print_json
    from sightline.cli.tables import print_table, table_of
    from sightline.config import Settings

    loaded = load(config, as_json=as_json)
    known = [
        (name, f"SIGHTLINE_{name.upper()}", field.description or "")
        for name, field in Settings.model_fields.items()
        if not is_set or loaded.sources[name] != "default"
    ]
    if as_json:
        values = loaded.settings.model_dump(mode="json")
        for name, variable, meaning in known:
            source = loaded.sources[name]
            print_json({"variable": variable, "value": values[name], "source": source, "meaning": meaning})
        return
    if not known:
        typer.echo("Nothing is set: every setting has its default.")
        return
    table = table_of("variable", "value", "source", "meaning")
    for name, variable, meaning in known:
        value = getattr(loaded.settings, name)
        text = ",".join(map(str, value)) if isinstance(value, tuple) else "" if value is None else str(value)
        table.add_row(variable, text, loaded.sources[name], meaning)
    print_table(table)


def _address(text: str) -> str:
    from sightline_client.keccak import checked_address

    try:
        return checked_address(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text} is not the address of a wallet: {error}") from error


@app.command(rich_help_panel=DEVELOP, cls=NumberCommand)
def faucet(
    address: Annotated[str, typer.Argument(callback=_address, help="Wallet address.")],
    amount: Annotated[USDC, usdc_argument("Amount in USDC, such as 5 or 0.50.", is_positive=True)],
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: ConfigFile = None,
) -> None:
    """Send test USDC to a wallet, and the native coin it needs for gas. Embedded chain of a running server only.

    It pays on the chain of the data directory, and warns if SIGHTLINE_URL names another server.
    """
    from sightline.bootstrap.maintenance.faucet import run_faucet
    from sightline.cli.other_server import other_server_warning

    settings = settings_of(config, as_json=as_json, data_dir=data_dir)
    raise typer.Exit(run_faucet(settings, address, amount, as_json=as_json, other_server=other_server_warning))


@app.command(rich_help_panel=HOST)
def settlements(as_json: AsJson = False, data_dir: DataDir = None, config: ConfigFile = None) -> None:
    """List the settlements of a running server that are not confirmed yet, with the reason."""
    from sightline.cli.operations import print_settlements

    raise typer.Exit(print_settlements(settings_of(config, as_json=as_json, data_dir=data_dir), as_json=as_json))


@app.command("write-off", rich_help_panel=HOST)
def write_off(session_id: SessionId, reason: str, data_dir: DataDir = None, config: ConfigFile = None) -> None:
    """Give up the settlement of a session for good, with a reason, and release the payer's hold."""
    from sightline.cli.operations import write_off_settlement

    raise typer.Exit(write_off_settlement(settings_of(config, data_dir=data_dir), session_id, reason))


@app.command(rich_help_panel=HOST)
def reconcile(
    operator: Annotated[
        str | None, typer.Option("--as", envvar="SIGHTLINE_OPERATOR", help="Your name, for the journal and audit log.")
    ] = None,
    adopt: Annotated[
        str | None, typer.Option(metavar="REASON", help="Adopt the payments into the journal, for this reason.")
    ] = None,
    accept_database: Annotated[
        bool,
        typer.Option(
            "--accept-database",
            help="While the server is stopped: use this database although it is older than what the server has seen.",
        ),
    ] = False,
    is_confirmed: Annotated[bool, typer.Option("--yes", help="Do not ask before something is changed.")] = False,
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: ConfigFile = None,
) -> None:
    """Compare the books with the chain, and list or adopt payments that the database does not know.

    The whole history of the contract is read again; each difference is a line with what to do. While there are unknown
    payments, because the database is older than the chain, no new session begins. Exit code 1 on any of both.
    """
    from sightline.cli.operations import reconcile_payments

    settings = settings_of(config, as_json=as_json, data_dir=data_dir)

    def confirm(question: str) -> bool:
        return is_confirmed or typer.confirm(question, err=True)

    if accept_database:
        from sightline.bootstrap.maintenance.accept_database import run_accept_database

        raise typer.Exit(run_accept_database(settings, confirm))
    if adopt is not None and operator is None:
        raise typer.BadParameter("--adopt needs your name: --as NAME")
    raise typer.Exit(
        reconcile_payments(
            settings,
            operator=operator,
            reason=adopt,
            confirm=confirm,
            as_json=as_json,
        )
    )


@app.command(rich_help_panel=HOST)
def nodes(data_dir: DataDir = None, as_json: AsJson = False, config: ConfigFile = None) -> None:
    """Show the servers of a running service: lease, shards, roles, clock, delay and address of each."""
    from sightline.cli.operations import print_nodes

    raise typer.Exit(print_nodes(settings_of(config, as_json=as_json, data_dir=data_dir), as_json=as_json))


@app.command(rich_help_panel=HOST)
def actors(
    data_dir: DataDir = None,
    revive: Annotated[str | None, typer.Option(help="KIND/ID of a parked actor to start again.")] = None,
    node: Annotated[str | None, typer.Option(help="Only this server, by its name in `sightline nodes`.")] = None,
    as_json: AsJson = False,
    config: ConfigFile = None,
) -> None:
    """Show the actors of all servers: counts, latencies, and parked ones with the reason. Start one again."""
    from sightline.cli.operations import print_actors, revive_actor

    settings = settings_of(config, as_json=as_json, data_dir=data_dir)
    if revive is None:
        raise typer.Exit(print_actors(settings, as_json=as_json, node=node))
    raise typer.Exit(revive_actor(settings, revive, node=node, as_json=as_json))


@app.command(rich_help_panel=HOST)
def backup(
    file: Annotated[
        Path, typer.Argument(dir_okay=False, help="New file for the backup. It will hold keys: protect it.")
    ],
    data_dir: DataDir = None,
    config: ConfigFile = None,
) -> None:
    """Back up database, embedded chain and keys as of one instant, also while the server runs."""
    from sightline.bootstrap.maintenance.backup import run_backup

    raise typer.Exit(run_backup(settings_of(config, data_dir=data_dir), file))


@app.command(rich_help_panel=HOST)
def restore(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="File that `sightline backup` wrote.")],
    withdrawals: Annotated[
        list[Path] | None,
        typer.Option(help="withdrawals.jsonl of a server that used the database until now; once for each server."),
    ] = None,
    data_dir: DataDir = None,
    config: ConfigFile = None,
) -> None:
    """Restore a backup into an empty data directory. A server must not run on it.

    All sign-ins end. Keys, memberships and workspaces that were revoked, removed or suspended after the backup stay so,
    if --withdrawals, the directory or SIGHTLINE_WITHDRAWALS_FILE has the file that says it.
    """
    from sightline.bootstrap.maintenance.restore import run_restore

    raise typer.Exit(run_restore(settings_of(config, data_dir=data_dir), file, withdrawals or ()))


@app.command(rich_help_panel=HOST)
def doctor(
    as_json: AsJson = False,
    data_dir: DataDir = None,
    config: ConfigFile = None,
) -> None:
    """Check host, settings, database and chain before a start, or beside a running server. Changes nothing."""
    from sightline.bootstrap.maintenance.doctor import run_doctor

    raise typer.Exit(
        run_doctor(settings_of(config, as_json=as_json, data_dir=data_dir), as_json=as_json, say=typer.echo)
    )


@app.command(rich_help_panel=DEVELOP)
def demo(
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the server running and print commands to continue with.")
    ] = False,
    data_dir: Annotated[
        Path | None, typer.Option(help="New directory for the demo; default: a temporary one, deleted at the end.")
    ] = None,
    frame: Annotated[Path, typer.Option(help="File for the first frame.")] = Path("sightline-frame.jpg"),
) -> None:
    """Run one session end to end on a server of its own, and check every amount."""
    from sightline.cli.demo import run_demo

    raise typer.Exit(run_demo(keep=keep, data_dir=data_dir, frame_path=frame))


# A view accepts 500 m by default. This is nearer to the place of the documents (52.520008, 13.404954), and to what the
# console's search proposes for Berlin (52.524, 13.411).
DEV_LAT: Final = 52.522
DEV_LNG: Final = 13.408


@app.command(rich_help_panel=DEVELOP)
def dev(
    port: Annotated[
        int,
        typer.Option(min=0, max=65_535, envvar="SIGHTLINE_PORT", help="Port of the server; 0 chooses a free one."),
    ] = 8080,
    lat: Annotated[float, lat_option("Latitude at which the device films.")] = DEV_LAT,
    lng: Annotated[float, lng_option("Longitude at which the device films.")] = DEV_LNG,
    data_dir: Annotated[
        Path | None, typer.Option(help="Directory for data and logs; default: a temporary one, deleted at the end.")
    ] = None,
    escrow: Annotated[
        bool, typer.Option("--escrow", help="Hold payments in the escrow contract, as the demo does; x402 needs it.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run a server with a funded consumer and a filming operator, and print URL and keys.

    Another run with the same directory has the same consumer and operator, with new API keys and more money.
    """
    from sightline.cli.dev import run_dev

    with one_line_errors(as_json=as_json):
        raise typer.Exit(run_dev(port=port, data_dir=data_dir, place=(lat, lng), is_escrow=escrow, as_json=as_json))


def main() -> None:
    """Run the command `sightline` with the commands of this package."""
    application(app)()
