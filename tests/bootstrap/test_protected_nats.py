"""NATS servers on another machine need TLS and a credential: otherwise the start is refused, and doctor says so."""

from pathlib import Path

import pytest

from sightline.bootstrap.failures.errors import StartError
from sightline.bootstrap.maintenance.findings import Level
from sightline.bootstrap.maintenance.service_checks import check_nats
from sightline.bootstrap.membership.bus import require_protected_nats
from sightline.bootstrap.process import prepare
from sightline.config import Settings

PROTECTED = [
    "",
    "nats://127.0.0.1:4222",
    "nats://localhost",
    "nats://[::1]:4222",
    "tls://token@nats-1:4222",
    "tls://user:word@10.0.0.5,tls://user:word@10.0.0.6",
]
OPEN = {
    "nats://10.0.0.5:4222": "no TLS and no credential",
    "nats://token@nats-1:4222": "no TLS",
    "tls://nats-1:4222": "no credential",
    "nats://0.0.0.0:4222": "no TLS",
    "nats://127.0.0.1.example.com": "no TLS",
    "tls://token@nats-1,nats://token@nats-2": "nats-2.*no TLS",
}


def settings_of(url: str, **more: object) -> Settings:
    return Settings(nats_url=url or None, **more)  # type: ignore[arg-type]  # as from the environment


@pytest.mark.parametrize("url", PROTECTED)
def test_loopback_and_servers_with_tls_and_a_credential_are_accepted(url: str) -> None:
    require_protected_nats(settings_of(url))
    assert [finding.level for finding in check_nats(settings_of(url))] == [Level.OK] * bool(url)


@pytest.mark.parametrize(("url", "lack"), OPEN.items())
def test_others_are_refused_unless_a_setting_accepts_them(url: str, lack: str) -> None:
    with pytest.raises(StartError, match=lack) as raised:
        require_protected_nats(settings_of(url))
    assert "SIGHTLINE_NATS_ALLOW_INSECURE" in str(raised.value)
    assert "token" not in str(raised.value).partition(". ")[0]
    assert [finding.level for finding in check_nats(settings_of(url))] == [Level.FAILED]
    accepted = settings_of(url, nats_allow_insecure=True)
    require_protected_nats(accepted)
    assert [finding.level for finding in check_nats(accepted)] == [Level.WARNING]


def test_files_of_the_settings_count(tmp_path: Path) -> None:
    require_protected_nats(settings_of("nats://nats-1", nats_ca=tmp_path, nats_credentials=tmp_path))
    require_protected_nats(settings_of("nats://nats-1", nats_cert=tmp_path, nats_key=tmp_path))


def test_they_are_refused_before_anything_is_started_or_made(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="no TLS"), prepare(settings_of("nats://nats-1", data_dir=tmp_path)):
        pass
    assert [each.name for each in tmp_path.iterdir()] == ["server.lock"]
