"""Figures for metrics.

Disk, backups and certificate are read from real files, and left out where there are none. The relayer's coin is read
from the chain once a minute.
"""

import contextlib
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from sightline.actors.shards import OwnedShards
from sightline.bootstrap.observability.host_metrics import host_metrics
from sightline.bootstrap.observability.last_backup import note_backup
from sightline.bootstrap.sampler import COIN_EVERY_S, SAMPLE_EVERY_S, Sampler
from sightline.chain.service import RelayerCoin
from sightline.config import Settings
from sightline.domain.errors import ChainUnavailableError
from sightline.ports.leases import ServerRole
from sightline.storage.database.bridge import Database
from sightline.system.clock import SystemClock
from tests.http.server.certificate import write_certificate


def values(settings: Settings) -> dict[str, object]:
    return {family.name: family.values for family in host_metrics(settings)}


def settings_of(directory: Path) -> Settings:
    tls = write_certificate(directory)
    return Settings(data_dir=directory, tls_cert=Path(tls.cert_file), tls_key=Path(tls.key_file))


def test_a_server_without_backup_and_certificate_has_its_free_disk_only(tmp_path: Path) -> None:
    read = values(Settings(data_dir=tmp_path))
    assert read.keys() == {"disk_free_bytes"}
    assert read["disk_free_bytes"] == pytest.approx(shutil.disk_usage(tmp_path).free, rel=0.1)


def test_a_directory_that_cannot_be_read_has_no_figures(tmp_path: Path) -> None:
    assert values(Settings(data_dir=tmp_path / "gone")) == {}


def test_the_last_backup_and_the_end_of_the_certificate_are_shown(tmp_path: Path) -> None:
    note_backup(tmp_path, 1_790_000_000_500)
    read = values(settings_of(tmp_path))
    assert read["backup_timestamp_seconds"] == 1_790_000_000.5
    ends = datetime(2024, 1, 1, tzinfo=UTC) + timedelta(days=36_500)
    assert read["tls_not_after_seconds"] == ends.timestamp()


def test_a_damaged_mark_and_certificate_are_left_out(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    (tmp_path / "cert.pem").write_text("no certificate")
    (tmp_path / "last_backup").write_text("yesterday")
    assert values(settings).keys() == {"disk_free_bytes"}


class Endpoint:
    """Stands for the chain: each answer is another balance."""

    def __init__(self) -> None:
        self.asked = 0
        self.is_down = False

    async def probe_signers(self) -> None:
        await trio.lowlevel.checkpoint()

    async def relayer_coin(self) -> RelayerCoin:
        await trio.lowlevel.checkpoint()
        self.asked += 1
        if self.is_down:
            raise ChainUnavailableError("down")
        return RelayerCoin(balance_wei=self.asked, sessions=1)


async def test_the_chain_is_asked_for_the_relayers_coin_once_a_minute_and_after_a_failure_or_a_take_over_at_once(
    database: Database, mock_clock: MockClock
) -> None:
    owned, chain = OwnedShards(), Endpoint()
    sampler = Sampler(database, object(), chain, SystemClock(), owned)  # type: ignore[arg-type]  # neither has a port

    async def balances(samples: int) -> list[int | None]:
        found: list[int | None] = []
        for _ in range(samples):
            with contextlib.suppress(ChainUnavailableError):
                await sampler.run_once()
            coin = sampler.figures.relayer_coin
            found.append(None if coin is None else coin.balance_wei)
            mock_clock.jump(SAMPLE_EVERY_S)
        return found

    a_minute = round(COIN_EVERY_S / SAMPLE_EVERY_S)
    assert await balances(2) == [None, None], "another server runs the relayer"
    owned.add({ServerRole.RELAYER: 1})
    assert await balances(a_minute + 1) == [1] * a_minute + [2]
    mock_clock.jump(COIN_EVERY_S)
    chain.is_down = True
    assert await balances(2) == [2, 2]
    chain.is_down = False
    assert await balances(1) == [5]
    owned.remove([ServerRole.RELAYER])
    assert await balances(1) == [None]
    owned.add({ServerRole.RELAYER: 2})
    assert await balances(1) == [6]
