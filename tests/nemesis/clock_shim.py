"""The wall clock of a server's processes, which a test can step.

The shim is a library of C that is loaded before libc (LD_PRELOAD): the code under test is unchanged and knows nothing
of it. scripts/interop_nemesis.sh builds it.
"""

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

LIBRARY: Final = Path(__file__).resolve().parents[2] / ".interop" / "nemesis" / "clock_shim.so"
SECOND_NS: Final = 1_000_000_000


@dataclass
class ClockShim:
    """An offset in a file that every process of one server maps."""

    path: Path
    offset_s: float = 0.0

    def __post_init__(self) -> None:
        assert LIBRARY.exists(), "run scripts/interop_nemesis.sh, which builds the clock shim"
        self._write()
        # The account of the embedded Postgres maps it too.
        self.path.chmod(0o644)

    @property
    def env(self) -> dict[str, str]:
        """What a process needs in its environment to live by this clock; its children inherit it."""
        return {"LD_PRELOAD": str(LIBRARY), "CLOCK_SHIM_FILE": str(self.path)}

    def step(self, seconds: float) -> None:
        """Move the wall clock by so much, at once."""
        self.offset_s += seconds
        self._write()

    def _write(self) -> None:
        # In place: the file is mapped by the processes. Eight aligned bytes are written in one piece.
        mode = "r+b" if self.path.exists() else "wb"
        with self.path.open(mode, buffering=0) as out:
            out.write(struct.pack("=q", round(self.offset_s * SECOND_NS)))
