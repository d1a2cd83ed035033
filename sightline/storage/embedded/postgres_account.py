"""Which account of the machine the embedded Postgres runs as. Postgres refuses to run as root."""

import os
import pwd
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, final

from sightline.domain.value import Value


class AccountError(Exception):
    """There is no account for Postgres; the message says what to do."""


@final
class Account(Value, kw_only=True):
    """The account of Postgres, and the one of our server, which alone may connect."""

    uid: int
    gid: int
    server_name: str
    """The user name of our server, as the kernel's word (peer) will have it."""
    switches: bool
    """True if we are root and Postgres is not."""

    def popen_options(self) -> dict[str, Any]:
        """Arguments of subprocess.Popen that make the child run as this account."""
        return {"user": self.uid, "group": self.gid, "extra_groups": []} if self.switches else {}

    def own(self, path: Path) -> None:
        """Give the path to this account."""
        if self.switches:
            os.chown(path, self.uid, self.gid)


def choose_account(run_as: str) -> Account:
    """Our own account, or, for root, the account named `run_as`.

    No user is created: the default, `nobody`, exists everywhere. A permanent server that runs as root should use an
    account of its own.

    Raises:
        AccountError: `run_as` does not exist, or our own user id has no name (initdb needs one).
    """
    server_uid = os.geteuid()
    try:
        server_name = pwd.getpwuid(server_uid).pw_name
        if server_uid != 0:
            return Account(uid=server_uid, gid=os.getegid(), server_name=server_name, switches=False)
        entry = pwd.getpwnam(run_as)
    except KeyError as error:
        raise AccountError(
            f"the embedded Postgres needs an account with a name: {error.args[0]}; "
            "add one, or give the address of a database of your own"
        ) from None
    return Account(uid=entry.pw_uid, gid=entry.pw_gid, server_name=server_name, switches=True)


def open_path_for(account: Account, path: Path, say: Callable[[str], None]) -> None:
    """As root, let the account pass through the directories above `path` (execute bit only)."""
    if not account.switches:
        return
    for directory in path.parents:
        status = directory.stat()
        passable = status.st_uid == account.uid or status.st_mode & stat.S_IXOTH
        if not passable:
            say(f"letting other accounts pass through {directory} (chmod o+x), for Postgres")
            directory.chmod(stat.S_IMODE(status.st_mode) | stat.S_IXOTH)
