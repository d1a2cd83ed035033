"""`python -m tests.attack.udp_flood HOST PORT KIND SECONDS`: send datagrams of one kind as fast as this process can.

Each comes from one of 200 sockets. Prints how many were sent, and how many bytes came back.
"""

import os
import socket
import struct
import sys
import time
from collections.abc import Callable

SOCKETS = 200
MAGIC = 0x2112A442


def stun() -> bytes:
    """A binding request without credentials (RFC 8489)."""
    return struct.pack("!HHI", 1, 0, MAGIC) + os.urandom(12)


def stun_with_user() -> bytes:
    """A binding request with an invented user, key and fingerprint, so that the server looks for the user."""
    user = os.urandom(8).hex().encode()
    attributes = struct.pack("!HH", 6, len(user)) + user + struct.pack("!HH", 8, 20) + os.urandom(20)
    return struct.pack("!HHI", 1, len(attributes), MAGIC) + os.urandom(12) + attributes


def hello() -> bytes:
    """A DTLS 1.2 ClientHello without cookie, as OpenSSL sends it (RFC 6347, 4.2.1)."""
    suites, extensions = bytes.fromhex("c02bc02f"), bytes.fromhex("000a00040002001d000d00040002040300170000")
    body = b"\xfe\xfd" + os.urandom(32) + b"\0\0" + struct.pack("!H", len(suites)) + suites + b"\1\0"
    body += struct.pack("!H", len(extensions)) + extensions
    head = b"\1" + len(body).to_bytes(3) + b"\0\0" + b"\0\0\0" + len(body).to_bytes(3)
    return b"\x16\xfe\xff" + bytes(8) + struct.pack("!H", len(head) + len(body)) + head + body


def media() -> bytes:
    """A datagram that looks like SRTP of a peer that the server does not know."""
    return b"\x80\x60" + os.urandom(1_100)


KINDS: dict[str, Callable[[], bytes]] = {"stun": stun, "user": stun_with_user, "hello": hello, "media": media}


def main(host: str, port: str, kind: str, seconds: str) -> None:
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(SOCKETS)]
    for each in sockets:
        each.setblocking(False)
        each.connect((host, int(port)))
    sent = heard = 0
    ends = time.monotonic() + float(seconds)
    while time.monotonic() < ends:
        for each in sockets:
            try:
                each.send(KINDS[kind]())
                sent += 1
                heard += len(each.recv(2_048))
            except OSError:
                continue
    sys.stdout.write(f"{sent} {heard}\n")


if __name__ == "__main__":
    main(*sys.argv[1:5])
