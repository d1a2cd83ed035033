"""What a program prints at a terminal."""

import os


def read_all(reader: int) -> str:
    """Read a terminal until its last writer has closed it, and close the reader."""
    said = b""
    try:
        while chunk := os.read(reader, 65_536):
            said += chunk
    except OSError:  # how Linux says that a terminal has no writer any more
        pass
    os.close(reader)
    return said.decode().replace("\r\n", "\n")
