"""`sightline doctor` names each fault of a host with its remedy, and passes on a running server."""

import json
import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from sightline.bootstrap.database_mark import write_mark
from sightline.bootstrap.maintenance.chain_checks import print_findings
from sightline.bootstrap.maintenance.doctor import run_doctor
from sightline.bootstrap.maintenance.findings import failed
from sightline.bootstrap.maintenance.service_checks import clock_finding
from sightline.config import Settings
from sightline.domain.value import replace
from sightline.storage.database.history import DatabasePosition
from tests.backup.conftest import sightline
from tests.chain.evm import an_evm
from tests.e2e.server import Server


def examined(**settings: Any) -> tuple[int, dict[str, list[tuple[str, str, str]]]]:
    """Run the doctor; returns its exit code and the findings by check."""
    lines: list[str] = []
    code = run_doctor(Settings.model_validate(settings), as_json=True, say=lines.append)
    found: dict[str, list[tuple[str, str, str]]] = {}
    for each in json.loads("".join(lines)):
        found.setdefault(each["check"], []).append((each["level"], each["detail"], each["remedy"]))
    return code, found


def a_certificate(directory: Path, *, days: float) -> dict[str, Path]:
    """Write a certificate that is valid for so many days from now, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    now = datetime.now(UTC)
    built = x509.CertificateBuilder(
        name, name, key.public_key(), 1, now - timedelta(days=99), now + timedelta(days=days)
    )
    pem = built.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    paths = {"tls_cert": directory / "cert.pem", "tls_key": directory / "key.pem"}
    paths["tls_cert"].write_bytes(pem)
    formats = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    paths["tls_key"].write_bytes(key.private_bytes(serialization.Encoding.PEM, *formats))
    return paths


def test_a_host_without_a_server_passes_and_nothing_is_created(tmp_path: Path) -> None:
    code, found = examined(data_dir=tmp_path / "data", port=0)
    assert code == 0
    assert {check for check, findings in found.items() if any(level == "failed" for level, _, _ in findings)} == set()
    assert list(tmp_path.iterdir()) == []


def test_a_directory_without_a_servers_data_is_not_called_complete(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("not of a server")
    code, found = examined(data_dir=tmp_path, port=0)
    ((level, detail, _),) = found["data directory"]
    assert (code, level) == (0, "ok")
    assert detail == f"{tmp_path} has no server's data yet; the first start creates it"


def test_a_port_in_use_is_failed_with_the_setting_to_change(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        code, found = examined(data_dir=tmp_path, port=taken.getsockname()[1], internal_port=0)
    assert code == 1
    ((level, detail, remedy),) = found["ports"]
    assert level == "failed"
    assert "already in use" in detail
    assert "SIGHTLINE_PORT" in remedy
    assert not remedy.endswith(".")  # the printed line adds it


@pytest.mark.parametrize(("days", "level"), [(-1, "failed"), (5, "warning"), (90, "ok")])
def test_the_life_of_the_certificate_is_judged(tmp_path: Path, days: int, level: str) -> None:
    _, found = examined(data_dir=tmp_path, port=0, **a_certificate(tmp_path, days=days))
    assert [finding[0] for finding in found["tls"]] == [level]


def test_a_key_of_another_certificate_is_failed(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    files = a_certificate(tmp_path, days=90) | {"tls_key": a_certificate(tmp_path / "other", days=90)["tls_key"]}
    code, found = examined(data_dir=tmp_path, port=0, **files)
    assert (code, found["tls"][0][0]) == (1, "failed")


def test_plain_http_on_a_public_address_is_a_warning(tmp_path: Path) -> None:
    _, found = examined(data_dir=tmp_path, host="0.0.0.0", port=0)
    assert found["tls"][0][0] == "warning"


def test_a_database_and_a_chain_that_do_not_answer_are_failed(tmp_path: Path) -> None:
    chain = {"chain_rpc_url": "http://127.0.0.1:1", "chain_id": 84532, "chain_relayer_key": "11" * 32}
    addresses = {"chain_usdc_address": "0x" + "1" * 40, "chain_settlement_address": "0x" + "2" * 40}
    dsn = "postgresql://nobody:secret@127.0.0.1:1/none"
    code, found = examined(data_dir=tmp_path, port=0, database_url=dsn, **chain, **addresses)
    assert code == 1
    assert (found["database"][0][0], found["chain"][0][0]) == ("failed", "failed")
    assert "SIGHTLINE_DATABASE_URL" in found["database"][0][2]
    assert "secret" not in json.dumps(found)
    detail = found["database"][0][1]
    assert 'connection to server at "127.0.0.1", port 1 failed: Connection refused' in detail
    assert not detail.endswith("?")


def test_a_chain_that_is_lost_is_not_said_to_be_created(tmp_path: Path) -> None:
    (tmp_path / "parts.json").write_text('{"parts": ["chain/chain.sqlite"]}')
    _, found = examined(data_dir=tmp_path, port=0)
    assert found["data directory"][0][0] == "failed"
    ((level, detail, remedy),) = found["chain"]
    assert (level, detail) == ("failed", f"{tmp_path / 'chain' / 'chain.sqlite'} is missing")
    assert "sightline restore FILE --data-dir NEW" in remedy


def test_a_file_system_that_takes_nothing_is_failed_whoever_asks() -> None:
    _, found = examined(data_dir=Path("/sys/sightline"), port=0)
    level, detail, _ = found["data directory"][0]
    assert level == "failed"
    assert detail.startswith("/sys is not writable: ")


def test_a_standby_for_which_no_commit_waits_is_failed(tmp_path: Path, postgres_dsn: str) -> None:
    # The first host is lost: the other one is examined all the same.
    hosts = postgres_dsn.replace("?host=", "?host=/nowhere,") + "&target_session_attrs=read-write"
    _, found = examined(data_dir=tmp_path, port=0, database_url=hosts)
    assert found["database"][0][0] == "ok"
    assert any("commits do not wait for the standby" in detail for _, detail, _ in found["durability"])
    _, alone = examined(data_dir=tmp_path, port=0, database_url=postgres_dsn)
    assert not any("standby" in detail for _, detail, _ in alone["durability"])


def test_a_database_that_the_start_would_refuse_is_failed(tmp_path: Path, database_dsn: str) -> None:
    def mark() -> tuple[str, str, str]:
        _, found = examined(data_dir=tmp_path, port=0, database_url=database_dsn)
        return found["database mark"][0]

    assert mark()[0] == "ok"
    seen = DatabasePosition(system_identifier=None, timeline=None, wal_bytes=None, take_overs=0, signed=0)
    write_mark(tmp_path, seen)
    assert mark()[0] == "ok"
    write_mark(tmp_path, replace(seen, signed=7))
    level, detail, remedy = mark()
    assert level == "failed"
    assert "it is empty: no server has ever used it" in detail
    assert "--accept-database" in remedy
    (tmp_path / "database_mark.json").write_text("{")
    assert mark()[0] == "failed"


@pytest.mark.parametrize("is_escrow", [False, True])
def test_settings_that_the_embedded_chain_refuses_are_failed(tmp_path: Path, is_escrow: bool) -> None:
    (tmp_path / "chain").mkdir()
    an_evm(tmp_path / "chain", chain_id=7, is_escrow=is_escrow).machine.store.close()
    right, wrong = ("escrow", "enforced") if is_escrow else ("enforced", "escrow")
    code, found = examined(data_dir=tmp_path, port=0, funds_policy=right, chain_id=7)
    assert [level for level, _, _ in found["chain"]] == ["ok"]
    code, found = examined(data_dir=tmp_path, port=0, funds_policy=wrong)
    assert code == 1
    assert [level for level, _, _ in found["chain"]] == ["ok", "failed", "failed"]
    assert [remedy for _, _, remedy in found["chain"][1:]] == [
        "Set SIGHTLINE_CHAIN_ID=7",
        "Set SIGHTLINE_FUNDS_POLICY=escrow"
        if is_escrow
        else "Set SIGHTLINE_FUNDS_POLICY=advisory, or enforced if that was set",
    ]


def test_an_address_that_is_not_ours_is_a_udp_warning(tmp_path: Path) -> None:
    _, found = examined(data_dir=tmp_path, port=0, video_bind_addresses="203.0.113.7")
    problems = [detail for level, detail, _ in found["udp"] if level == "warning"]
    assert len(problems) == 1
    assert "203.0.113.7" in problems[0]
    assert "cannot bind" in problems[0]


def test_a_missing_part_is_failed(tmp_path: Path) -> None:
    (tmp_path / "parts.json").write_text('{"parts": ["secrets.json"]}')
    code, found = examined(data_dir=tmp_path, port=0)
    assert (code, found["data directory"][0][0]) == (1, "failed")


@pytest.mark.parametrize(
    ("database_ms", "level"),
    [(1_000, "ok"), (1_004, "ok"), (4_000, "warning"), (99_000, "failed"), (-99_000, "failed")],
)
def test_the_clock_is_compared_with_the_database_s(database_ms: int, level: str) -> None:
    assert clock_finding(1_000, database_ms, 1_010).level == level


async def test_a_running_server_passes_with_its_database_and_chain(server: Server) -> None:
    await server.start()
    done = await sightline("doctor", "--json", "--data-dir", server.directory / "data")
    assert done.returncode == 0, done.stdout
    found = {each["check"]: each for each in json.loads(done.stdout)}
    assert {each["check"] for each in found.values() if each["level"] == "failed"} == set()
    assert found["database"]["detail"] == "Postgres 18"
    assert "as this version" in found["schema"]["detail"]
    assert found["clock"]["level"] == "ok"
    assert "embedded; block" in found["chain"]["detail"]


def test_a_message_that_is_a_sentence_does_not_end_in_two_full_stops() -> None:
    lines: list[str] = []
    print_findings(
        [failed("tls", "It cannot be used: it does not fit.", "Correct it")], as_json=False, say=lines.append
    )
    assert lines == ["failed   tls             It cannot be used: it does not fit. Correct it."]
