"""What was taken away and a restored database lacks is applied; what it has, or changed later, stays."""

from pathlib import Path

import pytest

from sightline.domain.access import Role
from sightline.domain.errors import OutcomeUnknownError
from sightline.ports.identity import Invitation, InvitationLimits, Withdrawal, WithdrawalKind
from sightline.storage.database.bridge import Database
from sightline.storage.postgres.operations.invitations import PostgresInvitations
from sightline.storage.postgres.operations.withdrawals import BATCH, WithdrawalLog
from sightline.system.ids import SystemIds
from sightline.system.withdrawal_file import append_withdrawals, read_withdrawals

ADDRESS = "0x" + "ab" * 20


@pytest.fixture
def workspace_id() -> str:
    return SystemIds().uuid()


async def relations_of(database: Database, workspace_id: str) -> list[str]:
    statement = "SELECT relation FROM relation_tuple WHERE resource_id = $1 AND subject_id = $2"
    rows = await database.read(lambda connection: connection.fetch(statement, workspace_id, ADDRESS))
    return [row["relation"] for row in rows]


async def add_relation(database: Database, workspace_id: str, relation: str) -> None:
    statement = "INSERT INTO relation_tuple VALUES ('workspace', $1, $2, 'wallet', $3)"
    await database.run(lambda connection: connection.execute(statement, workspace_id, relation, ADDRESS))


def a_change(workspace_id: str, at_ms: int, role: str = "") -> Withdrawal:
    return Withdrawal(
        kind=WithdrawalKind.MEMBER, at_ms=at_ms, workspace_id=workspace_id, subject=ADDRESS, state=role
    )  # fmt: skip


async def test_a_removal_is_applied_to_a_database_from_before_it_once(
    database: Database, tmp_path: Path, workspace_id: str
) -> None:
    log = WithdrawalLog(tmp_path / "file", database)
    await log.record(a_change(workspace_id, 5))
    assert await log.apply(read_withdrawals(tmp_path / "file")) == [
        "0 keys revoked, 0 memberships ended, 0 workspaces suspended, 0 sign-ins ended"
    ]
    await add_relation(database, workspace_id, "owner")
    await log.apply(read_withdrawals(tmp_path / "file"))
    assert await relations_of(database, workspace_id) == ["owner"], "it knows the removal: the wallet was added later"
    await database.run(lambda connection: connection.execute("DELETE FROM withdrawal"))  # as it was before
    (done,) = await log.apply(read_withdrawals(tmp_path / "file"))
    assert "1 memberships ended" in done
    assert await relations_of(database, workspace_id) == []


async def test_the_file_of_one_server_does_not_undo_what_another_has_changed_later(
    database: Database, tmp_path: Path, workspace_id: str
) -> None:
    one, two = (WithdrawalLog(tmp_path / name, database) for name in ("one", "two"))
    await one.record(a_change(workspace_id, 5))
    await two.record(a_change(workspace_id, 9, "VIEWER"))
    await add_relation(database, workspace_id, "viewer")
    await one.apply(read_withdrawals(tmp_path / "one"))
    assert await relations_of(database, workspace_id) == ["viewer"]


async def test_a_suspension_and_its_end_are_applied_in_their_order(
    database: Database, tmp_path: Path, workspace_id: str
) -> None:
    log = WithdrawalLog(tmp_path / "file", database)
    entries = [
        Withdrawal(kind=WithdrawalKind.SUSPENSION, at_ms=at_ms, workspace_id=workspace_id, state=reason, actor="Ada")
        for at_ms, reason in ((1, "it's a fraud"), (2, ""), (3, "again"))
    ]
    for count, expected in ((1, 1), (2, 0), (3, 1)):
        await log.apply(entries[:count])
        found = await database.read(
            lambda connection: connection.fetchval(
                "SELECT count(*) FROM workspace_suspension WHERE workspace_id = $1", workspace_id
            )
        )
        assert found == expected


async def test_many_entries_are_applied_in_several_statements(database: Database, tmp_path: Path) -> None:
    log = WithdrawalLog(tmp_path / "file", database)
    assert len(await log.apply([a_change(SystemIds().uuid(), 1) for _ in range(BATCH + 1)])) == 2


async def test_a_file_that_cannot_be_written_is_an_unknown_outcome(
    database: Database, tmp_path: Path, workspace_id: str
) -> None:
    log = WithdrawalLog(tmp_path / "no directory" / "file", database)
    with pytest.raises(OutcomeUnknownError, match="not recorded"):
        await log.record(a_change(workspace_id, 5))


async def test_an_invitation_that_was_withdrawn_after_the_backup_stays_withdrawn(
    database: Database, tmp_path: Path, workspace_id: str
) -> None:
    log, store = WithdrawalLog(tmp_path / "file", database), PostgresInvitations(database)
    for at_ms in (3, 7):
        invitation = Invitation(
            id=SystemIds().uuid(), workspace_id=workspace_id, wallet_address=ADDRESS, role=Role.OWNER,
            invited_by="0x" + "cd" * 20, created_at_ms=at_ms, expires_at_ms=100,
        )  # fmt: skip
        await store.invite(invitation, InvitationLimits())
        append_withdrawals(tmp_path / "file", [a_change(workspace_id, 5)])
        await log.apply(read_withdrawals(tmp_path / "file"))
        await database.run(lambda connection: connection.execute("DELETE FROM withdrawal"))
        is_open = await store.open_for(ADDRESS, now_ms=8, limit=1) == (invitation,)
        assert is_open is (at_ms == 7), "an invitation that is newer than the withdrawal stays"


ADD_KEY = """
INSERT INTO api_key (key_id, workspace_id, digest, label, prefix, environment, scopes, created_at_ms, created_by_wallet,
  revoked_at_ms, grace_ends_at_ms, session_id)
VALUES ($1, $2, sha256(gen_random_uuid()::text::bytea), 'x', 'x', 'TEST', '{sessions:read}', 1, 'x', $3, $4, $5)
"""


async def end_of(database: Database, key_id: str) -> int | None:
    statement = "SELECT grace_ends_at_ms FROM api_key WHERE key_id = $1"
    end: int | None = await database.read(lambda connection: connection.fetchval(statement, key_id))
    return end


def a_key_change(workspace_id: str, key_id: str, at_ms: int, state: str = "") -> Withdrawal:
    return Withdrawal(
        kind=WithdrawalKind.KEY, at_ms=at_ms, workspace_id=workspace_id, subject=key_id, state=state
    )  # fmt: skip


async def test_a_key_whose_revocation_was_taken_back_stays_and_one_in_its_grace_is_kept(
    database: Database, tmp_path: Path, workspace_id: str
) -> None:
    log, key_id = WithdrawalLog(tmp_path / "file", database), SystemIds().uuid()
    await database.run(lambda connection: connection.execute(ADD_KEY, key_id, workspace_id, 5, 65, None))
    await log.apply([a_key_change(workspace_id, key_id, 5), a_key_change(workspace_id, key_id, 9, "kept")])
    assert await end_of(database, key_id) is None
    await log.apply([a_key_change(workspace_id, key_id, 20)])
    assert await end_of(database, key_id) == 20


async def test_a_share_link_that_was_revoked_after_the_backup_ends_and_an_ended_one_ends_no_later(
    database: Database, tmp_path: Path, workspace_id: str
) -> None:
    log, session_id = WithdrawalLog(tmp_path / "file", database), SystemIds().uuid()
    for end_ms, expected in ((1_000, 7), (3, 3)):
        key_id = SystemIds().uuid()
        row = (key_id, workspace_id, end_ms, end_ms, session_id)
        await database.run(lambda connection, row=row: connection.execute(ADD_KEY, *row))
        await log.apply([a_key_change(workspace_id, key_id, 7)])
        assert await end_of(database, key_id) == expected
