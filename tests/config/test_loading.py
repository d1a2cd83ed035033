"""Settings: where they come from, how lists are written, and what is said about wrong ones."""

import json
from pathlib import Path
from typing import Final

import pytest

from sightline.config import Settings, SettingsError, load_settings


def refused(environment: dict[str, str], **given: object) -> tuple[str, ...]:
    with pytest.raises(SettingsError) as error:
        load_settings(environment, overrides=given)
    assert not any("\n" in line for line in error.value.lines)
    return error.value.lines


def a_file(directory: Path, text: str) -> Path:
    path = directory / "sightline.toml"
    path.write_text(text)
    return path


def test_the_command_line_overrides_the_environment_which_overrides_the_file(tmp_path: Path) -> None:
    path = a_file(tmp_path, 'port = 1\ndrain_seconds = 2.5\nhost = "::1"\n')
    environment = {"SIGHTLINE_PORT": "2", "SIGHTLINE_DRAIN_SECONDS": "3", "SIGHTLINE_CONFIG": str(path)}
    loaded = load_settings(environment, overrides={"port": 3, "data_dir": None})
    assert (loaded.settings.port, loaded.settings.drain_seconds, loaded.settings.host) == (3, 3.0, "::1")
    assert loaded.sources["port"] == "command line"
    assert loaded.sources["drain_seconds"] == "environment"
    assert loaded.sources["host"] == str(path)
    assert loaded.sources["data_dir"] == "default"


@pytest.mark.parametrize(
    "origin", ["*", "null", "https://App.example.com", "https://app.example.com/", "app.example.com"]
)
def test_a_value_that_no_browser_sends_as_origin_is_refused(origin: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load_settings({"SIGHTLINE_CORS_ORIGINS": f"http://localhost:5173,{origin}"})
    assert repr(origin) in refused.value.lines[0]
    assert "SIGHTLINE_CORS_ORIGINS" in refused.value.lines[0]


def test_a_proxy_that_is_no_network_is_refused() -> None:
    (line,) = refused({"SIGHTLINE_TRUSTED_PROXIES": "127.0.0.1,172.16.0.1/12"})
    assert "SIGHTLINE_TRUSTED_PROXIES" in line
    assert "'172.16.0.1/12' is neither an address nor a network" in line


@pytest.mark.parametrize("keys", ["abc", "k1:!!!", "k1:c2hvcnQ=", "k1:" + "QUFB" * 11 + ",k1:" + "QUFB" * 11])
def test_cookie_keys_that_are_none_are_refused_without_their_text(keys: str) -> None:
    (line,) = refused({"SIGHTLINE_COOKIE_KEYS": keys})
    assert "SIGHTLINE_COOKIE_KEYS" in line
    assert keys not in line
    assert "KID:BASE64" in line or "the same kid" in line


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.5", "internal.example.com"])
def test_an_internal_listener_off_loopback_needs_a_token(host: str) -> None:
    (line,) = refused({"SIGHTLINE_INTERNAL_HOST": host})
    assert host in line
    assert "set SIGHTLINE_INTERNAL_TOKEN" in line
    assert load_settings({"SIGHTLINE_INTERNAL_HOST": host, "SIGHTLINE_INTERNAL_TOKEN": "secret"}).settings


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1", "localhost"])
def test_an_internal_listener_on_loopback_needs_no_setting(host: str) -> None:
    assert load_settings({"SIGHTLINE_INTERNAL_HOST": host}).settings.internal_token is None


def test_lists_are_comma_lists_in_the_environment_and_arrays_in_the_file(tmp_path: Path) -> None:
    from_environment = load_settings({"SIGHTLINE_TRUSTED_PROXIES": "127.0.0.1, ::1,"}).settings
    assert from_environment.trusted_proxies == ("127.0.0.1", "::1")
    path = a_file(tmp_path, 'trusted_proxies = ["10.0.0.1"]\n[corridors]\n"52,13" = 12000\n')
    from_file = load_settings({}, config_file=path).settings
    assert (from_file.trusted_proxies, from_file.corridors) == (("10.0.0.1",), {"52,13": 12000})
    assert load_settings({"SIGHTLINE_CORRIDORS": '{"52,13": 12000}'}).settings.corridors == {"52,13": 12000}


@pytest.mark.parametrize(
    ("name", "near"),
    [("SIGHTLINE_PROT", "SIGHTLINE_PORT"), ("SIGHTLINE_TRUSTED_PROXY", "SIGHTLINE_TRUSTED_PROXIES")],
)
def test_a_misspelt_variable_is_refused_with_the_nearest_name(name: str, near: str) -> None:
    assert refused({name: "1"}) == (f"{name} is not a setting. Did you mean {near}?",)


def test_variables_of_others_with_our_prefix_are_warned_about_and_do_not_stop_the_server() -> None:
    names = (
        "SERVICE_HOST",
        "SERVICE_PORT",
        "SERVICE_PORT_HTTP",
        "PORT_8080_TCP",
        "PORT_8080_TCP_PROTO",
        "PORT_8080_TCP_PORT",
    )
    kubernetes = {f"SIGHTLINE_{name}": "10.0.0.1" for name in names}
    loaded = load_settings(kubernetes | {"SIGHTLINE_API_KEY": "ours", "SIGHTLINE_TEST_DSN": "ours", "PATH": "/"})
    assert [line.split()[0] for line in loaded.warnings] == sorted(kubernetes)


def test_an_unknown_name_in_the_file_is_refused(tmp_path: Path) -> None:
    path = a_file(tmp_path, "prot = 1\nsomething_else = 2\n")
    lines = sorted(refused({"SIGHTLINE_CONFIG": str(path)}))
    assert lines[0] == f"prot in {path} is not a setting. Did you mean port?"
    assert lines[1].startswith(f"something_else in {path} is not a setting.")


def test_every_wrong_setting_has_a_line_that_names_it_as_it_was_written(tmp_path: Path) -> None:
    path = a_file(tmp_path, 'video_workers = "many"\n')
    lines = refused(
        {"SIGHTLINE_BASE_RATE_MICRO_USDC": "0", "SIGHTLINE_CORRIDORS": "52", "SIGHTLINE_CONFIG": str(path)}, port=-1
    )
    starts = sorted(line.partition(":")[0] for line in lines)
    assert starts == ["--port", "SIGHTLINE_BASE_RATE_MICRO_USDC", "SIGHTLINE_CORRIDORS", f"video_workers in {path}"]


def test_a_wrong_secret_is_not_repeated(tmp_path: Path) -> None:
    lines = refused({"SIGHTLINE_CHAIN_ID": "hunter2", "SIGHTLINE_CHAIN_RELAYER_KEY": "hunter2"})
    assert "hunter2" not in " ".join(lines)


@pytest.mark.parametrize("text", ["port = ", "\udcff"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "sightline.toml"
    path.write_bytes(text.encode(errors="surrogateescape"))
    (line,) = refused({"SIGHTLINE_CONFIG": str(path)})
    assert line.startswith(f"Cannot read the settings file {path}: ")
    (line,) = refused({"SIGHTLINE_CONFIG": str(tmp_path)})
    assert "Is a directory" in line


def test_an_empty_variable_counts_as_not_set() -> None:
    assert load_settings({"SIGHTLINE_TLS_CERT": "", "SIGHTLINE_PORT": ""}).settings.port == 8080


def test_the_internal_port_is_chosen_when_the_public_one_is() -> None:
    assert load_settings({}).settings.internal_port == 8081
    assert load_settings({}, overrides={"port": 0}).settings.internal_port == 0
    assert load_settings({"SIGHTLINE_INTERNAL_PORT": "9"}, overrides={"port": 0}).settings.internal_port == 9


@pytest.mark.parametrize(("host", "is_taken"), [("127.0.0.1", True), ("0.0.0.0", True), ("127.0.0.2", False)])
def test_one_port_for_both_listeners_is_refused_where_they_would_meet(host: str, is_taken: bool) -> None:
    env = {"SIGHTLINE_PORT": "18530", "SIGHTLINE_INTERNAL_PORT": "18530", "SIGHTLINE_HOST": host}
    if not is_taken:
        assert load_settings(env).settings.port == 18530
        return
    with pytest.raises(SettingsError, match="SIGHTLINE_PORT and SIGHTLINE_INTERNAL_PORT are both 18530"):
        load_settings(env)


def test_urls_of_nats_servers_are_a_comma_list_and_a_wrong_one_is_refused_without_its_token() -> None:
    several = load_settings({"SIGHTLINE_NATS_URL": "nats://s3cret@one:4222, tls://two:4222,"}).settings
    assert several.nats_servers == ("nats://s3cret@one:4222", "tls://two:4222")
    assert "s3cret" not in repr(several)
    (line,) = refused({"SIGHTLINE_NATS_URL": "http://s3cret@one"})
    assert "SIGHTLINE_NATS_URL" in line
    assert "s3cret" not in line
    assert refused({"SIGHTLINE_NATS_CERT": "cert.pem"}) == ("NATS needs SIGHTLINE_NATS_KEY.",)


def test_a_relative_data_directory_is_that_of_the_current_one_whatever_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert load_settings({}).settings.data_dir == tmp_path / "sightline-data"
    assert load_settings({"SIGHTLINE_DATA_DIR": "one"}).settings.secrets_path == tmp_path / "one" / "secrets.json"
    assert load_settings({}, overrides={"data_dir": Path("two")}).settings.data_dir == tmp_path / "two"


def test_a_current_directory_that_is_gone_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert load_settings({"SIGHTLINE_DATA_DIR": "/data"}).settings.data_dir == Path("/data")
    (line,) = refused({})
    assert "SIGHTLINE_DATA_DIR" in line
    assert "current directory" in line


def test_the_secrets_are_in_the_data_directory_by_default() -> None:
    assert load_settings({"SIGHTLINE_DATA_DIR": "/data"}).settings.secrets_path == Path("/data/secrets.json")
    assert load_settings({"SIGHTLINE_SECRETS_FILE": "/run/secrets/sightline"}).settings.secrets_path == Path(
        "/run/secrets/sightline"
    )


WRONG_ADDRESSES: Final = (
    *(("PUBLIC_URL", "notaurl"), ("PUBLIC_URL", "ftp://video.example.com"), ("PUBLIC_URL", "https://")),
    *(("PUBLIC_URL", "https://video.example.com/path"), ("PUBLIC_URL", "https://user@video.example.com")),
    *(("PUBLIC_URL", "https://video.example.com:99999"), ("PUBLIC_URL", "https://video example.com")),
    ("PUBLIC_URL", "https://300.1.1.1"),
    *(("HOST", "http://0.0.0.0"), ("INTERNAL_HOST", "127.0.0.1:8081"), ("PORT", "65536"), ("INTERNAL_PORT", "-1")),
    *(("ALLOWED_HOSTS", "https://video.example.com"), ("ALLOWED_HOSTS", "video.example.com:8443")),
    *(("CORS_ORIGINS", "app.example.com"), ("TRUSTED_PROXIES", "172.16.0.1/12"), ("TRACES_ENDPOINT", "127.0.0.1:4318")),
    *(("DATABASE_URL", "mysql://db/hunter2"), ("DATABASE_URL", "postgresql://db:99999/hunter2")),
    *(("NATS_URL", "http://hunter2@one"), ("NATS_URL", "nats://hunter2@one:99999"), ("NATS_URL", "nats://300.1.1.1")),
    *(("SPICEDB_ENDPOINT", "http://spicedb:50051"), ("SPICEDB_ENDPOINT", "spicedb")),
    *(("CHAIN_RPC_URL", "rpc.example.com/hunter2"), ("CHAIN_PUBLIC_RPC_URL", "rpc.example.com"), ("CHAIN_ID", "0")),
    ("CHAIN_RPC_URL", "http://one.example,two.example/hunter2"),
    ("CHAIN_RPC_URL", "http://one.example/hunter2, http://one.example/hunter2"),
    *(("CHAIN_EXPLORER_URL", "javascript:alert(1)"), ("CHAIN_METER_SIGNER_URL", "127.0.0.1:9000")),
    ("CHAIN_RELAYER_SIGNER_URL", "127.0.0.1:9000"),
    *(("CHAIN_USDC_ADDRESS", "usdc"), ("CHAIN_USDC_ADDRESS", "0xE7f1725E7734CE288F8367e1Bb143E90bb3F0512")),
    *(("CHAIN_SETTLEMENT_ADDRESS", "0x1234"), ("MAP_TILES_URL", "tiles.example.org")),
    *(("VIDEO_MEDIAMTX_URL", "localhost:8889"), ("VIDEO_MEDIAMTX_API_URL", "http://:9997")),
    *(("VIDEO_BIND_ADDRESSES", "127.0.0.1,eth0"), ("VIDEO_ADVERTISED_ADDRESSES", "https://video.example.com")),
    *(("VIDEO_ADVERTISED_ADDRESSES", "203.0.113.300"), ("VIDEO_ADVERTISED_ADDRESSES", "203.0.113.7:40000")),
    *(("VIDEO_ADVERTISED_ADDRESSES", "0.0.0.0"), ("VIDEO_ADVERTISED_ADDRESSES", "203.0.113.7, ff02::1")),
    *(("VIDEO_ICE_SERVERS", "http://not-ice|user|hunter2"), ("VIDEO_ICE_SERVERS", "stun:")),
    *(("VIDEO_UDP_PORT_MIN", "-1"), ("VIDEO_UDP_PORT_MAX", "65536"), ("VIDEO_TCP_PORT", "65536")),
)


@pytest.mark.parametrize(("name", "value"), WRONG_ADDRESSES)
def test_an_address_that_cannot_work_is_refused_by_the_name_of_its_setting(name: str, value: str) -> None:
    (line,) = refused({f"SIGHTLINE_{name}": value})
    assert line.startswith(f"SIGHTLINE_{name}: ")
    assert "hunter2" not in line


def test_every_setting_that_holds_an_address_is_checked() -> None:
    words = {"url", "host", "hosts", "port", "address", "addresses", "endpoint", "servers", "origins", "proxies"}
    named = {name for name in Settings.model_fields if words & set(name.split("_"))}
    assert {name.lower() for name, _ in WRONG_ADDRESSES} == {*named, "chain_id"}


EXTERNAL: Final = {
    "SIGHTLINE_CHAIN_RPC_URL": "http://127.0.0.1:8545",
    "SIGHTLINE_CHAIN_USDC_ADDRESS": "0x" + "1" * 40,
    "SIGHTLINE_CHAIN_SETTLEMENT_ADDRESS": "0x" + "2" * 40,
    "SIGHTLINE_CHAIN_RELAYER_KEY": "0x" + "3" * 64,
}


@pytest.mark.parametrize("chain", [{}, EXTERNAL], ids=["embedded", "external"])
@pytest.mark.parametrize("chain_id", ["1", "8453"])
def test_the_id_of_a_main_network_is_refused(chain: dict[str, str], chain_id: str) -> None:
    (line,) = refused({"SIGHTLINE_CHAIN_ID": chain_id, **chain})
    assert line.startswith(f"SIGHTLINE_CHAIN_ID: {chain_id} is a main network")
    load_settings({"SIGHTLINE_CHAIN_ID": "84532", **chain})


@pytest.mark.parametrize("cell", ["99,13", "-91,13", "52,181", "52", "52,13,1", "52.5,13", "052,13", "52, 13", "-0,13"])
def test_a_corridor_in_which_no_place_is_is_refused(cell: str) -> None:
    (line,) = refused({"SIGHTLINE_CORRIDORS": json.dumps({cell: 12_000})})
    assert line.startswith(f"SIGHTLINE_CORRIDORS: {cell!r} is not a cell")


@pytest.mark.parametrize("bps", [12, 4_999, 30_001])
def test_a_multiplier_that_would_be_applied_otherwise_is_refused(bps: int) -> None:
    (line,) = refused({"SIGHTLINE_CORRIDORS": json.dumps({"52,13": bps})})
    assert line == f"SIGHTLINE_CORRIDORS: {bps} of 52,13 must be 5000 to 30000; 10000 changes nothing."


def test_the_corridors_at_the_edges_of_the_world_are_taken() -> None:
    cells = {"-90,-180": 5_000, "90,180": 30_000, "0,0": 10_000, "-34,151": 12_000}
    assert load_settings({"SIGHTLINE_CORRIDORS": json.dumps(cells)}).settings.corridors == cells


def test_a_grace_longer_than_the_silence_is_refused() -> None:
    (line,) = refused({"SIGHTLINE_SILENCE_SECONDS": "10", "SIGHTLINE_SILENCE_GRACE_SECONDS": "11"})
    assert "SIGHTLINE_SILENCE_GRACE_SECONDS" in line


@pytest.mark.parametrize(("first", "last"), [("5000", "4000"), ("5000", "0"), ("0", "5000")])
def test_an_empty_range_of_media_ports_is_refused(first: str, last: str) -> None:
    (line,) = refused({"SIGHTLINE_VIDEO_UDP_PORT_MIN": first, "SIGHTLINE_VIDEO_UDP_PORT_MAX": last})
    assert "SIGHTLINE_VIDEO_UDP_PORT_MIN and SIGHTLINE_VIDEO_UDP_PORT_MAX" in line


def test_a_public_url_may_end_with_a_slash_and_name_a_port_or_an_address() -> None:
    for written, url in (
        ("https://video.example.com/", "https://video.example.com"),
        ("http://[::1]:8080", "http://[::1]:8080"),
        ("https://192.0.2.7", "https://192.0.2.7"),
    ):
        assert load_settings({"SIGHTLINE_PUBLIC_URL": written}).settings.public_url == url


def test_one_media_port_is_a_range() -> None:
    assert load_settings({"SIGHTLINE_VIDEO_UDP_PORT_MIN": "5000", "SIGHTLINE_VIDEO_UDP_PORT_MAX": "5000"}).settings
