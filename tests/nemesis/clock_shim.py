"""Step the wall clock of a server's processes.

The shim is a C library that is loaded before libc (LD_PRELOAD), so the code under test is unchanged.
scripts/interop_nemesis.sh builds it.
"""

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

LIBRARY: Final = Path(__file__).resolve().parents[2] / ".interop" / "nemesis" / "clock_shim.so"
SECOND_NS: Final = 1_000_000_000


@dataclass
class ClockShim:
    """A clock offset in a file that every process of one server maps."""

    path: Path
    offset_s: float = 0.0

    def __post_init__(self) -> None:
        assert LIBRARY.exists(), "run scripts/interop_nemesis.sh, which builds the clock shim"
        self._write()
        # The account of the embedded Postgres maps the file too.
        self.path.chmod(0o644)

    @property
    def env(self) -> dict[str, str]:
        """Return the environment variables that make a process and its children use this clock."""
        return {"LD_PRELOAD": str(LIBRARY), "CLOCK_SHIM_FILE": str(self.path)}

    def step(self, seconds: float) -> None:
        """Step the wall clock by this many seconds at once."""
        self.offset_s += seconds
        self._write()

    def _write(self) -> None:
        # Written in place, because the processes map the file. An aligned write of eight bytes is atomic.
        mode = "r+b" if self.path.exists() else "wb"
        with self.path.open(mode, buffering=0) as out:
            out.write(struct.pack("=q", round(self.offset_s * SECOND_NS)))
