"""Which account of the operating system holds the other end of a TCP connection from this machine.

The kernel lists each TCP socket with the user id of its owner (Linux, proc_pid_net(5)). A client cannot choose it.
Other machines, and containers with a network of their own, are not in the list.
"""

import ipaddress
import pwd
import socket
import struct
from pathlib import Path
from typing import Final

TABLES: Final = {4: Path("/proc/net/tcp"), 6: Path("/proc/net/tcp6")}
ESTABLISHED: Final = "01"


def account_of(client: tuple[str, int]) -> str | None:
    """Return the account that owns the client's socket while its connection is open; None if it is not known."""
    try:
        address = ipaddress.ip_address(client[0])
        lines = TABLES[address.version].read_text().splitlines()[1:]
    except (ValueError, OSError):
        return None
    wanted = f"{_hex(address)}:{client[1]:04X}"
    for line in lines:
        columns = line.split()
        if columns[1] == wanted and columns[3] == ESTABLISHED:
            return _name(int(columns[7]))
    return None


def _hex(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    """The form of the tables: 32-bit words in the machine's byte order."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    packed = socket.inet_pton(family, str(address))
    return "".join(f"{word:08X}" for word in struct.unpack(f"={len(packed) // 4}I", packed))


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"
