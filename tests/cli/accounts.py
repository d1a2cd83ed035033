"""Accounts of the machine."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def as_another_account(private: Path) -> Iterator[None]:
    """Run as an account that may not read this file or directory: as root, another one; else nobody may read it."""
    mode = private.stat().st_mode
    private.chmod(0)
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(65_534)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)
        private.chmod(mode)
