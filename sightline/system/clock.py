"""The machine's clock, behind the Clock port."""

import time
from typing import final


@final
class SystemClock:
    """Wall-clock time of this machine."""

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        return time.time_ns() // 1_000_000
