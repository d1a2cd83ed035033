"""The client's half of the NATS protocol, without input and output.

https://docs.nats.io/reference/reference-protocols/nats-protocol
"""

import base64
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias, final
from urllib.parse import SplitResult, unquote, urlsplit

import nkeys

PORT: Final = 4222
PING: Final = b"PING\r\n"
PONG: Final = b"PONG\r\n"
LINE_MAX: Final = 1_048_576
"""Maximum size of a line that the NATS server sends, in bytes; INFO names all servers of its cluster."""

_END: Final = b"\r\n"
_MESSAGE: Final = re.compile(rb"MSG (\S+) \S+ (?:(\S+) )?(\d{1,8})\r\n")
_MESSAGE_WITH_HEADERS: Final = re.compile(rb"HMSG (\S+) \S+ (?:(\S+) )?(\d{1,8}) (\d{1,8})\r\n")
_NO_RESPONDERS: Final = b"NATS/1.0 503"
_JWT: Final = re.compile(r"-+BEGIN NATS USER JWT-+\s+(\S+)\s+-+END NATS USER JWT-+")
_SEED: Final = re.compile(r"-+BEGIN USER NKEY SEED-+\s+(\S+)\s+-+END USER NKEY SEED-+")

OnMessage: TypeAlias = Callable[[bytes, bytes, bytes, bool], None]
"""Called with subject, reply subject, payload, and whether the message says that a subject has no subscriber."""
OnOperation: TypeAlias = Callable[[bytes, bytes], None]
"""Called with the name of an operation, such as PING, and the rest of its line."""


class NatsError(Exception):
    """The NATS server refused something, or does not speak the protocol as expected."""


@final
class Parser:
    """Takes what a NATS server sends apart. A message goes to one function, every other operation to another one."""

    def __init__(self, on_message: OnMessage, on_operation: OnOperation) -> None:
        self._on_message = on_message
        self._on_operation = on_operation
        self._rest = b""

    def feed(self, data: bytes) -> None:
        """Handle all operations that are complete, and keep the rest.

        Raises:
            NatsError: A line is too long.
        """
        data = self._rest + data
        at = 0
        while at < len(data):
            if found := _MESSAGE.match(data, at):
                header_size, size = 0, int(found[3])
            elif found := _MESSAGE_WITH_HEADERS.match(data, at):
                header_size, size = int(found[3]), int(found[4])
            else:
                end = data.find(_END, at)
                if end < 0:
                    if len(data) - at > LINE_MAX:
                        raise NatsError("the NATS server sent a line that is too long")
                    break
                name, _, rest = data[at:end].partition(b" ")
                self._on_operation(name, rest)
                at = end + len(_END)
                continue
            body = found.end()
            end = body + size
            if len(data) < end + len(_END):
                break
            is_undelivered = header_size > 0 and data.startswith(_NO_RESPONDERS, body)
            self._on_message(found[1], found[2] or b"", data[body + header_size : end], is_undelivered)
            at = end + len(_END)
        self._rest = data[at:]


def publish(subject: str, reply: str, payload: bytes) -> bytes:
    """A message to all subscribers of a subject."""
    return b"PUB %b %b %d\r\n%b\r\n" % (subject.encode(), reply.encode(), len(payload), payload)


def subscribe(subject: str, number: int) -> bytes:
    """A subscription; numbers of one connection differ."""
    return b"SUB %b %d\r\n" % (subject.encode(), number)


def connect(info: Mapping[str, Any], url: str, name: str, credentials: Path | None) -> bytes:
    """The answer to the first INFO: who connects, and what it understands.

    Args:
        info: What the NATS server says of itself.
        url: May hold a user name and password, or a token.
        name: Shown by the NATS server in its list of connections.
        credentials: File with a JWT and a key, as `nsc` writes it.

    Raises:
        NatsError: The NATS server is too old, or the file holds no credentials.
        OSError: The file cannot be read.
    """
    if not info.get("headers"):
        raise NatsError("the NATS server is older than 2.2: it does not say that a subject has no subscriber")
    options: dict[str, object] = {
        "name": name,
        "lang": "python",
        "version": "1",
        "protocol": 1,  # INFO may be sent at any time, to say that this server ends
        "verbose": False,
        "pedantic": False,
        "echo": False,
        "headers": True,
        "no_responders": True,
        **_login(urlsplit(url)),
    }
    if credentials is not None:
        options |= _signature(credentials.read_text(), str(info.get("nonce", "")))
    return b"CONNECT %b\r\n" % json.dumps(options).encode()


def host_and_port(url: str) -> tuple[str, int]:
    """Host and port of a NATS server's URL."""
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or PORT


def endpoint(url: str) -> str:
    """Host and port of a NATS server's URL without its credentials, for logs."""
    host, port = host_and_port(url)
    return f"{host}:{port}"


def _login(url: SplitResult) -> dict[str, str]:
    if url.username is None:
        return {}
    if url.password is None:
        return {"auth_token": unquote(url.username)}
    return {"user": unquote(url.username), "pass": unquote(url.password)}


def _signature(credentials: str, nonce: str) -> dict[str, str]:
    jwt, seed = _JWT.search(credentials), _SEED.search(credentials)
    if jwt is None or seed is None:
        raise NatsError("the NATS credentials file holds no JWT with a key")
    key = nkeys.from_seed(seed[1].encode())
    return {"jwt": jwt[1], "sig": base64.b64encode(key.sign(nonce.encode())).decode()}
