"""A server that cannot start prints one line that names the setting to change, and exits with code 1."""

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote

import pytest
import structlog.testing
import trio

from sightline.bootstrap.process import prepare
from sightline.config import Settings
from sightline.system.ids import SystemIds
from sightline.system.secrets import load_secrets
from tests.conftest import on_server
from tests.e2e.server import Server
from tests.storage.proxy import open_wire

CERTIFICATE_COMMAND = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -keyout {key} -out {cert}"


async def start_line(directory: Path, *args: str, env: dict[str, str] | None = None, exit_code: int = 1) -> str:
    """Start a server that must not start; return its stderr, which must be one line without a traceback."""
    line = [sys.executable, "-m", "sightline.cli", "serve", "--port", "0", "--data-dir", str(directory / "data"), *args]
    settings = {"SIGHTLINE_VIDEO_WORKERS": "1"} | (env or {})
    with trio.fail_after(120):
        done = await trio.run_process(
            line, capture_stdout=True, capture_stderr=True, check=False, env=os.environ | settings
        )
    said = [line for line in done.stderr.decode().splitlines() if not line.startswith("{")]
    assert (done.returncode, len(said), done.stdout) == (exit_code, 1, b""), done.stderr.decode()
    assert "Traceback" not in done.stderr.decode()
    return said[0]


@contextmanager
def a_taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        yield taken.getsockname()[1]


@pytest.mark.parametrize(("option", "setting"), [("--port", "SIGHTLINE_PORT"), ("--internal-port", "INTERNAL_PORT")])
async def test_a_taken_port_names_its_setting(data_directory: Path, option: str, setting: str) -> None:
    with a_taken_port() as port:
        said = await start_line(data_directory, option, str(port))
    assert f"Port {port} on 127.0.0.1 is already in use" in said
    assert setting in said


async def test_all_taken_ports_are_named_at_once(data_directory: Path) -> None:
    with a_taken_port() as one, a_taken_port() as two:
        said = await start_line(data_directory, "--port", str(one), "--internal-port", str(two))
    for port, setting in ((one, "SIGHTLINE_PORT"), (two, "SIGHTLINE_INTERNAL_PORT")):
        assert f"Port {port} on 127.0.0.1 is already in use. Set {setting}" in said


async def test_an_address_of_another_machine_names_its_setting(data_directory: Path) -> None:
    said = await start_line(data_directory, "--host", "192.0.2.1")
    assert "Cannot listen on 192.0.2.1" in said
    assert "SIGHTLINE_HOST" in said


async def test_a_data_directory_that_cannot_be_made_names_its_setting(data_directory: Path) -> None:
    (data_directory / "data").write_text("a file")
    said = await start_line(data_directory)
    assert "SIGHTLINE_DATA_DIR" in said
    assert "File exists" in said


@pytest.mark.parametrize("text", ["", "{}", "not json"])
async def test_a_damaged_secrets_file_names_it(data_directory: Path, text: str) -> None:
    (data_directory / "data").mkdir()
    (data_directory / "data" / "secrets.json").write_text(text)
    said = await start_line(data_directory)
    assert "secrets.json" in said
    assert "SIGHTLINE_DATA_DIR" in said


async def test_a_secrets_file_that_is_missing_is_not_made_where_the_data_directory_was_used(
    data_directory: Path,
) -> None:
    (data_directory / "data").mkdir()
    (data_directory / "data" / "server.json").write_text("{}")
    mistyped = data_directory / "secert.json"
    said = await start_line(data_directory, env={"SIGHTLINE_SECRETS_FILE": str(mistyped)})
    assert f"{mistyped} (SIGHTLINE_SECRETS_FILE) does not exist" in said
    assert not mistyped.exists()


def test_a_secrets_file_that_others_may_read_is_logged(tmp_path: Path) -> None:
    path = tmp_path / "secrets.json"
    load_secrets(path, SystemIds())
    settings = Settings(data_dir=tmp_path / "data", port=0, secrets_file=path)
    for mode, is_logged in ((0o600, False), (0o644, True)):
        path.chmod(mode)
        with structlog.testing.capture_logs() as logged, prepare(settings):
            pass
        found = [each for each in logged if each["event"] == "secrets_readable_by_others"]
        assert [each["mode"] for each in found] == ["0644"] * is_logged


def test_a_start_says_that_a_new_service_begins_in_its_directory_and_only_then(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path / "data", port=0)
    begun = []
    for _ in range(2):
        with structlog.testing.capture_logs() as logged, prepare(settings):
            pass
        begun.append([each["data_dir"] for each in logged if each["event"] == "service_begins"])
    assert begun == [[str(settings.data_dir)], []]


async def test_a_damaged_embedded_database_names_the_data_directory_and_the_log(server: Server) -> None:
    await server.start()
    assert await server.stop() == 0
    cluster = server.directory / "data" / "postgres" / "cluster"
    shutil.rmtree(cluster / "base")
    said = await start_line(server.directory)
    assert "SIGHTLINE_DATA_DIR" in said


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("postgresql://nobody@127.0.0.1:9/none", "does not answer"),
        ("postgresql://nobody@127.0.0.1:9/none?sslmode=sometimes", "refuses the connection"),
    ],
)
async def test_an_unreachable_database_names_its_setting(data_directory: Path, url: str, reason: str) -> None:
    env = {"SIGHTLINE_DATABASE_URL": url, "SIGHTLINE_STARTUP_TIMEOUT_SECONDS": "1"}
    said = await start_line(data_directory, env=env)
    assert reason in said
    assert "SIGHTLINE_DATABASE_URL" in said


async def test_a_database_that_is_not_reached_is_reported_once_and_not_at_each_attempt(data_directory: Path) -> None:
    unreachable = "postgresql://nobody@127.0.0.1:9/none"
    line = [sys.executable, "-m", "sightline.cli", "serve", "--port", "0", "--data-dir", str(data_directory / "data")]
    settings = {"SIGHTLINE_DATABASE_URL": unreachable, "SIGHTLINE_STARTUP_TIMEOUT_SECONDS": "4"}
    with trio.fail_after(120):
        done = await trio.run_process(line, capture_stderr=True, check=False, env=os.environ | settings)
    (said,) = [line for line in done.stderr.decode().splitlines() if "database_not_reached" in line]
    assert "waits for the database of SIGHTLINE_DATABASE_URL, 4 s at most" in said


async def test_a_port_that_is_taken_while_the_server_starts_is_named(
    data_directory: Path, empty_database_dsn: str
) -> None:
    async with open_wire(empty_database_dsn) as wire:
        upstream, wire.upstream = wire.upstream, "/no/such/socket"
        with socket.socket() as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            other.bind(("127.0.0.1", 0))
            port = other.getsockname()[1]
            server = spawn(data_directory, port, SIGHTLINE_DATABASE_URL=wire.dsn, SIGHTLINE_INTERNAL_PORT="0")
            try:
                assert server.stderr is not None
                with trio.fail_after(90):  # it has bound the port, and waits for its database
                    said_so_far = b""
                    while b"database_not_reached" not in said_so_far:
                        line = await trio.to_thread.run_sync(server.stderr.readline, abandon_on_cancel=True)
                        said_so_far += line
                        assert line, f"it ended: {said_so_far.decode()}"
                    other.listen()
                    wire.upstream = upstream
                    rest = await trio.to_thread.run_sync(server.stderr.read, abandon_on_cancel=True)
            finally:
                code = await end(server)
    said = [line for line in rest.decode().splitlines() if not line.startswith("{")]
    assert (code, len(said)) == (1, 1), rest.decode()
    assert f"Port {port} on 127.0.0.1 is already in use. Set SIGHTLINE_PORT" in said[0]


async def test_a_database_name_that_does_not_exist_is_refused_at_once(data_directory: Path, postgres_dsn: str) -> None:
    env = {"SIGHTLINE_DATABASE_URL": postgres_dsn.replace("/postgres?", "/no_such_database?")}
    said = await start_line(data_directory, env=env)
    assert "no_such_database" in said
    assert "SIGHTLINE_DATABASE_URL" in said


@pytest.fixture
def dsn_without_rights(empty_database_dsn: str) -> Iterator[str]:
    """A database in which the role may not create tables."""
    role = "without_rights"
    on_server(empty_database_dsn, lambda connection: connection.execute(f"CREATE ROLE {role}"))
    yield f"{empty_database_dsn}&role={role}"
    on_server(empty_database_dsn, lambda connection: connection.execute(f"DROP ROLE {role}"))


async def test_a_role_without_rights_is_refused_at_once(data_directory: Path, dsn_without_rights: str) -> None:
    said = await start_line(data_directory, env={"SIGHTLINE_DATABASE_URL": dsn_without_rights})
    assert "The role of SIGHTLINE_DATABASE_URL lacks a right: permission denied for schema public." in said


@contextmanager
def a_pooler(directory: Path, dsn: str, mode: str) -> Iterator[str]:
    """Run PgBouncer before a database; yields its address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    host = re.search(r"host=([^&]+)", dsn)
    assert host is not None
    settings = directory / "pgbouncer.ini"
    settings.write_text(
        f"[databases]\n* = host={unquote(host[1])} user=postgres\n[pgbouncer]\nlisten_addr = 127.0.0.1\n"
        f"listen_port = {port}\nauth_type = any\npool_mode = {mode}\nunix_socket_dir =\n"
    )
    settings.chmod(0o644)
    directory.chmod(0o755)
    as_user = ["-u", "nobody"] if os.getuid() == 0 else []
    process = subprocess.Popen(["pgbouncer", *as_user, str(settings)], stderr=subprocess.PIPE)
    try:
        yield re.sub(r"\?.*", "", dsn).replace("@/", f"@127.0.0.1:{port}/")
    finally:
        process.terminate()
        process.communicate()


@pytest.mark.interop
@pytest.mark.parametrize("mode", ["session", "transaction"])
async def test_a_connection_pooler_is_refused_at_once(data_directory: Path, empty_database_dsn: str, mode: str) -> None:
    with a_pooler(data_directory, empty_database_dsn, mode) as dsn:
        said = await start_line(data_directory, env={"SIGHTLINE_DATABASE_URL": dsn})
    assert "SIGHTLINE_DATABASE_URL leads to a connection pooler (unsupported startup parameter" in said


async def test_an_unreachable_chain_names_its_setting(data_directory: Path) -> None:
    env = {
        "SIGHTLINE_CHAIN_RPC_URL": "http://127.0.0.1:9",
        "SIGHTLINE_CHAIN_ID": "84532",
        "SIGHTLINE_CHAIN_USDC_ADDRESS": "0x" + "11" * 20,
        "SIGHTLINE_CHAIN_SETTLEMENT_ADDRESS": "0x" + "22" * 20,
        "SIGHTLINE_CHAIN_RELAYER_KEY": "0x" + "5d" * 32,
    }
    said = await start_line(data_directory, env=env)
    assert "SIGHTLINE_CHAIN_RPC_URL" in said


async def test_a_relayer_key_that_is_not_one_names_its_setting(data_directory: Path) -> None:
    env = {
        "SIGHTLINE_CHAIN_RPC_URL": "http://127.0.0.1:9",
        "SIGHTLINE_CHAIN_ID": "84532",
        "SIGHTLINE_CHAIN_USDC_ADDRESS": "0x" + "11" * 20,
        "SIGHTLINE_CHAIN_SETTLEMENT_ADDRESS": "0x" + "22" * 20,
        "SIGHTLINE_CHAIN_RELAYER_KEY": "hunter2",
    }
    said = await start_line(data_directory, env=env)
    assert "SIGHTLINE_CHAIN_RELAYER_KEY" in said
    assert "hunter2" not in said


@pytest.mark.parametrize("name", ["SIGHTLINE_CHAIN_REFUND_KEY", "SIGHTLINE_CHAIN_METER_KEY"])
async def test_a_key_that_is_not_hexadecimal_is_refused_in_words(data_directory: Path, name: str) -> None:
    said = await start_line(data_directory, env={name: "hunter2"})
    assert said == f"Cannot start: {name} cannot be used: a private key is written as 64 hexadecimal digits."


async def test_tls_files_that_do_not_fit_name_their_settings(data_directory: Path) -> None:
    cert, key, other = (data_directory / name for name in ("cert.pem", "key.pem", "other.pem"))
    for target in (other, key):
        command = CERTIFICATE_COMMAND.format(key=target, cert=cert)
        await trio.run_process(command.split(), capture_stdout=True, capture_stderr=True)
    env = {"SIGHTLINE_TLS_CERT": str(cert), "SIGHTLINE_TLS_KEY": str(data_directory / "missing.pem")}
    said = await start_line(data_directory, env=env)
    assert "SIGHTLINE_TLS_KEY cannot be used: No such file or directory" in said
    said = await start_line(data_directory, env=env | {"SIGHTLINE_TLS_KEY": str(other)})
    assert "SIGHTLINE_TLS_CERT" in said
    assert "SIGHTLINE_TLS_KEY" in said


async def test_details_are_logged_at_debug_level(data_directory: Path) -> None:
    line = [sys.executable, "-m", "sightline.cli", "serve", "--port", "0", "--host", "192.0.2.1"]
    done = await trio.run_process(
        [*line, "--data-dir", str(data_directory / "data")],
        capture_stderr=True,
        check=False,
        env=os.environ | {"SIGHTLINE_LOG_LEVEL": "debug"},
    )
    assert '"event":"start_failed"' in done.stderr.decode()
    assert "OSError" in done.stderr.decode()


def spawn(directory: Path, port: int = 0, **env: str) -> "subprocess.Popen[bytes]":
    line = [sys.executable, "-m", "sightline.cli", "serve", "--port", str(port), "--data-dir", str(directory)]
    settings = os.environ | {"SIGHTLINE_VIDEO_WORKERS": "1"} | env
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=settings)


async def end(process: "subprocess.Popen[bytes]") -> int:
    """Send SIGTERM; returns the exit code."""
    process.terminate()
    with trio.move_on_after(90):
        await trio.to_thread.run_sync(process.communicate, abandon_on_cancel=True)
    process.kill()
    return process.wait()


async def test_two_servers_with_port_0_start_side_by_side(data_directory: Path) -> None:
    servers = [spawn(data_directory / name) for name in ("one", "two")]
    try:
        for server in servers:
            assert server.stdout is not None
            with trio.fail_after(120):
                said = await trio.to_thread.run_sync(server.stdout.readline, abandon_on_cancel=True)
            assert said.startswith(b"ready http://127.0.0.1:")
    finally:
        assert [await end(server) for server in servers] == [0, 0]


async def test_sigterm_during_the_start_stops_it(data_directory: Path) -> None:
    unreachable = "postgresql://nobody@127.0.0.1:9/none"
    server = spawn(data_directory, SIGHTLINE_DATABASE_URL=unreachable, SIGHTLINE_STARTUP_TIMEOUT_SECONDS="60")
    try:
        assert server.stderr is not None
        with trio.fail_after(90):
            while b"database_not_reached" not in await trio.to_thread.run_sync(
                server.stderr.readline, abandon_on_cancel=True
            ):
                continue
    finally:
        assert await end(server) == 0
