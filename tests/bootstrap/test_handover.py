"""What a worker gets from its supervisor: all settings, and its share of what is divided."""

import os
from pathlib import Path

import pytest

from sightline.bootstrap.failures.errors import StartError
from sightline.bootstrap.options import http
from sightline.bootstrap.options.http import internal_limits, public_limits, share_of_worker
from sightline.bootstrap.workers.handover import Handover, settings_of_worker
from sightline.config import load_settings
from sightline.http.server import Limits as HttpLimits

ENVIRONMENT = {
    "SIGHTLINE_DATABASE_URL": "postgresql://me:hunter2@db/x",
    "SIGHTLINE_NATS_URL": "nats://hunter2@one,nats://hunter2@two",
    "SIGHTLINE_TRUSTED_PROXIES": "127.0.0.1,::1",
    "SIGHTLINE_CORRIDORS": '{"52,13": 12000}',
    "SIGHTLINE_TLS_AUTO": "true",
    "SIGHTLINE_WORKERS": "4",
}


def test_a_handover_carries_every_setting_and_shows_no_secret(tmp_path: Path) -> None:
    issued = {"tls_cert": tmp_path / "cert.pem", "tls_key": tmp_path / "key.pem"}
    settings = load_settings(ENVIRONMENT).settings.model_copy(update=issued)
    handover = Handover(
        settings=settings,
        incarnation="a run",
        directory=tmp_path,
        public_url="https://here",
        public_socket=5,
        internal_socket=None,
    )
    line = handover.dump()
    assert line.count(b"\n") == 1
    assert len(line) < 60_000, "a pipe takes it at once"
    assert Handover.load(line) == handover
    assert "hunter2" not in repr(handover)


def test_connections_media_processes_and_udp_ports_are_divided() -> None:
    ports = {"SIGHTLINE_VIDEO_UDP_PORT_MIN": "50000", "SIGHTLINE_VIDEO_UDP_PORT_MAX": "50009"}
    settings = load_settings(ENVIRONMENT | ports | {"SIGHTLINE_VIDEO_WORKERS": "9"}).settings
    shares = [settings_of_worker(settings, number) for number in (1, 2, 3, 4)]
    assert [(share.video_udp_port_min, share.video_udp_port_max) for share in shares] == [
        (50000, 50001), (50002, 50003), (50004, 50005), (50006, 50007)
    ]  # fmt: skip
    assert {(share.database_pool, share.video_workers) for share in shares} == {(10, 2)}
    assert {share.secrets_file for share in shares} == {settings.secrets_path}


def test_each_worker_has_a_tcp_port_for_media_of_its_own() -> None:
    for port, expected in (("40000", [40000, 40001]), ("0", [0, 0]), ("-1", [-1, -1])):
        settings = load_settings(ENVIRONMENT | {"SIGHTLINE_VIDEO_TCP_PORT": port}).settings
        assert [settings_of_worker(settings, number).video_tcp_port for number in (1, 2)] == expected


def test_a_pool_that_was_set_is_not_divided_and_each_worker_has_a_media_process() -> None:
    settings = load_settings(ENVIRONMENT | {"SIGHTLINE_DATABASE_POOL": "20", "SIGHTLINE_WORKERS": "16"}).settings
    share = settings_of_worker(settings, 1)
    assert share.database_pool == 20
    assert share.video_workers == max(1, (os.cpu_count() or 1) // 16)


def test_limits_of_connections_and_streams_are_divided_and_at_least_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http.resource, "getrlimit", lambda _which: (1_000_000, 1_000_000))
    alone, *others = (
        load_settings(ENVIRONMENT | {"SIGHTLINE_WORKERS": workers}).settings for workers in ("1", "4", "16")
    )
    whole = HttpLimits()
    assert public_limits(alone) == whole
    shares = [settings_of_worker(settings, 1) for settings in others]
    found = [(each.connections_max, each.connections_per_ip_max) for each in map(public_limits, shares)]
    assert found == [(5_000, 250), (1_250, 62)]
    assert (share_of_worker(shares[0], 1_000), share_of_worker(shares[1], 3)) == (250, 1)


def test_the_connections_of_other_servers_are_not_divided() -> None:
    one, many = (load_settings(ENVIRONMENT | {"SIGHTLINE_WORKERS": workers}).settings for workers in ("1", "16"))
    assert internal_limits(settings_of_worker(many, 1)) == internal_limits(one)


def test_fewer_udp_ports_than_workers_are_refused_with_their_setting() -> None:
    ports = {"SIGHTLINE_VIDEO_UDP_PORT_MIN": "50000", "SIGHTLINE_VIDEO_UDP_PORT_MAX": "50002"}
    with pytest.raises(StartError, match="SIGHTLINE_VIDEO_UDP_PORT_MIN"):
        settings_of_worker(load_settings(ENVIRONMENT | ports).settings, 1)
