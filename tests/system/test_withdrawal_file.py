"""The file of withdrawals is appended to durably, survives torn lines, and is merged with others."""

import stat
from pathlib import Path

from sightline.ports.identity import Withdrawal, WithdrawalKind
from sightline.system.withdrawal_file import append_withdrawals, merged, read_withdrawals


def an_entry(at_ms: int, subject: str = "k") -> Withdrawal:
    return Withdrawal(kind=WithdrawalKind.KEY, at_ms=at_ms, workspace_id="w", subject=subject, state="ä\n'\"")


def test_entries_are_read_as_they_were_appended_and_only_the_account_reads_them(tmp_path: Path) -> None:
    path = tmp_path / "withdrawals.jsonl"
    assert list(read_withdrawals(path)) == []
    append_withdrawals(path, [an_entry(1)])
    append_withdrawals(path, [an_entry(2), an_entry(3)])
    assert list(read_withdrawals(path)) == [an_entry(1), an_entry(2), an_entry(3)]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_torn_line_and_those_of_a_newer_version_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "withdrawals.jsonl"
    append_withdrawals(path, [an_entry(1)])
    path.write_bytes(path.read_bytes()[:-9])  # the power was lost
    append_withdrawals(path, [an_entry(2)])
    for line in (b'{"kind":"newer","at_ms":1}', b"[]", b"5", b'{"kind":"key"}', b"\xff"):
        path.write_bytes(path.read_bytes() + b"\n" + line)
    append_withdrawals(path, [an_entry(3)])
    assert list(read_withdrawals(path)) == [an_entry(2), an_entry(3)]


def test_files_of_several_servers_are_merged_by_time_and_each_entry_counts_once() -> None:
    assert merged([an_entry(3), an_entry(1)], [an_entry(2), an_entry(1)]) == [an_entry(1), an_entry(2), an_entry(3)]
