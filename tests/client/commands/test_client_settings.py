"""Server and keys of the commands: from the environment, else from the table [client] of a TOML file."""

import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner

import sightline_client
from sightline.config import load_settings
from sightline_client import NotReachedError
from sightline_client.commands import application
from sightline_client.commands.access import client
from sightline_client.commands.client_settings import ClientSettings, load_client_settings

FILE = '[client]\nurl = "https://file.example"\napi_key = "svc_file"\n'
VARIABLES = ("SIGHTLINE_CONFIG", "SIGHTLINE_URL", "SIGHTLINE_API_KEY", "SIGHTLINE_WALLET_KEY", "XDG_CONFIG_HOME")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".config").mkdir()
    return tmp_path


def test_without_variables_and_file_nothing_is_set() -> None:
    assert load_client_settings() == ClientSettings()


def test_the_environment_overrides_the_file(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / ".config" / "sightline.toml").write_text(FILE)
    assert load_client_settings() == ClientSettings(url="https://file.example", api_key="svc_file")
    monkeypatch.setenv("SIGHTLINE_API_KEY", "svc_environment")
    monkeypatch.setenv("SIGHTLINE_URL", "")
    assert load_client_settings() == ClientSettings(url="https://file.example", api_key="svc_environment")


def test_one_file_can_hold_the_settings_of_server_and_commands(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = home / "both.toml"
    path.write_text(f"port = 8090\n{FILE}")
    monkeypatch.setenv("SIGHTLINE_CONFIG", str(path))
    assert load_client_settings().api_key == "svc_file"
    assert load_settings({}, config_file=path).settings.port == 8090


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[client]\nurll = 'x'\n", "urll in .* is not a text setting"),
        ("[client]\nurl = 8080\n", "url in .* is not a text setting"),
        ("client = 1\n", "is not a table"),
        ("[client\n", r"Cannot read .*sightline\.toml: Expected"),
    ],
)
def test_a_wrong_file_is_refused_with_the_next_step(home: Path, text: str, said: str) -> None:
    (home / ".config" / "sightline.toml").write_text(text)
    with pytest.raises(ValueError, match=said):
        load_client_settings()


def test_a_file_that_is_named_must_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIGHTLINE_CONFIG", "/nowhere/sightline.toml")
    with pytest.raises(ValueError, match=r"Cannot read /nowhere/sightline\.toml: No such file"):
        load_client_settings()


def test_a_key_does_not_show() -> None:
    assert "svc" not in repr(ClientSettings(api_key="svc_secret", wallet_key="svc"))


def test_a_default_address_where_nothing_runs_is_refused_at_once_and_named_as_the_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.socket() as reserved:  # bound and not listening: connections are refused
        reserved.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{reserved.getsockname()[1]}"
        monkeypatch.setattr(sightline_client, "DEFAULT_URL", url)
        default = pytest.raises(NotReachedError, match="This is the default, because SIGHTLINE_URL is not set")
        with default as refused, client(None):
            pass
        assert str(refused.value).startswith(f"Cannot reach {url}: [Errno 111] Connection refused. This is the default")
        with client(url):  # a server that is named may start later
            pass
        key = {"SIGHTLINE_API_KEY": "svc_test_abcdef_" + "0" * 43, "SIGHTLINE_URL": ""}
        done = CliRunner(env=key).invoke(application(), ["device", "--lat", "1", "--lng", "2"])
        assert (done.exit_code, done.stderr.count("This is the default, because SIGHTLINE_URL is not set")) == (1, 1)
