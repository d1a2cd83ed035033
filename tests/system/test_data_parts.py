"""Parts of a data directory: what a killed first start has left is no damage, and what a server has used is."""

from pathlib import Path

import pytest

from sightline.system.data_directory import CHAIN_DATABASE, SECRETS, PartMissingError, check_parts, record_parts


def made(directory: Path, content: bytes) -> Path:
    path = directory / CHAIN_DATABASE.path
    path.parent.mkdir(mode=0o700)
    path.write_bytes(content)
    return path


def test_an_empty_file_of_a_first_start_that_was_killed_is_accepted(tmp_path: Path) -> None:
    made(tmp_path, b"")
    check_parts(tmp_path, [CHAIN_DATABASE])


def test_a_file_that_a_server_has_used_and_that_is_empty_now_is_damaged(tmp_path: Path) -> None:
    path = made(tmp_path, b"blocks")
    record_parts(tmp_path, [CHAIN_DATABASE])
    path.write_bytes(b"")
    with pytest.raises(PartMissingError, match=r"chain\.sqlite is damaged"):
        check_parts(tmp_path, [CHAIN_DATABASE])


def test_empty_secrets_are_damaged_also_before_a_server_was_ready(tmp_path: Path) -> None:
    (tmp_path / SECRETS.path).write_bytes(b"")
    with pytest.raises(PartMissingError, match=r"secrets\.json is damaged"):
        check_parts(tmp_path, [SECRETS])
