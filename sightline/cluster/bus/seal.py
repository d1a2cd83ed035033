"""Encrypts and authenticates the frames between the servers of one service (ADR 0172).

A frame is sealed for one receiver with AES-256-GCM. Each sender has a key of its own, which everybody who has the
service's secrets derives from its incarnation; the serial of the frame is the nonce, so no nonce is used twice. A
receiver opens each serial of a sender at most once, and only in rising order: a frame that was recorded opens nowhere
else, not after a restart of the receiver (it has a new incarnation then), and not a second time.
"""

from collections import OrderedDict
from typing import Final, final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

MARK: Final = b"\xc1"
"""The first byte of a sealed frame: no msgpack value begins with it, so an older server takes no frame for its own."""
NAME_MAX: Final = 64
"""Bytes of an incarnation."""
SERIAL_BYTES: Final = 8
NONCE_PAD: Final = b"\0\0\0\0"
TAG_BYTES: Final = 16
OVERHEAD: Final = len(MARK) + 1 + NAME_MAX + SERIAL_BYTES + TAG_BYTES
SENDERS_MAX: Final = 65_536
"""Senders that are remembered; then the one that was silent for longest is forgotten. Only servers become senders."""


@final
class Seal:
    """Seals the frames of one server, and opens those for it."""

    def __init__(self, key: bytes, me: str) -> None:
        """Create the seal of a server that has sent nothing.

        Args:
            key: Secret of the service, 32 bytes.
            me: The server's incarnation. It must be new for each run: a nonce would be used twice otherwise.
        """
        self._key = key
        self._me = me.encode()
        assert 0 < len(self._me) <= NAME_MAX, me
        self._own = self._cipher_of(self._me)
        self._head = MARK + bytes((len(self._me),)) + self._me
        self._known: OrderedDict[bytes, tuple[AESGCM, int]] = OrderedDict()
        """Sender: its cipher, and the highest serial that was opened."""

    def seal(self, to: str, serial: int, frame: bytes) -> bytes:
        """Seal a frame. The serial must be above that of every frame before."""
        number = serial.to_bytes(SERIAL_BYTES)
        return self._head + number + self._own.encrypt(NONCE_PAD + number, frame, to.encode())

    def open(self, sealed: bytes) -> tuple[str, bytes] | None:
        """Open a frame: its sender and content; None if no server has sealed it for this one, or it came before."""
        end = 2 + (sealed[1] if len(sealed) > 1 else 0)
        sender, number, body = sealed[2:end], sealed[end : end + SERIAL_BYTES], sealed[end + SERIAL_BYTES :]
        if not sealed.startswith(MARK) or not 2 < end <= 2 + NAME_MAX or len(body) < TAG_BYTES:
            return None
        cipher, latest = self._known.get(sender) or (self._cipher_of(sender), 0)
        serial = int.from_bytes(number)
        if serial <= latest:
            return None
        try:
            frame = cipher.decrypt(NONCE_PAD + number, body, self._me)
            name = sender.decode()
        except (InvalidTag, UnicodeDecodeError):
            return None
        self._known[sender] = (cipher, serial)
        self._known.move_to_end(sender)
        if len(self._known) > SENDERS_MAX:
            self._known.popitem(last=False)
        return name, frame

    def _cipher_of(self, sender: bytes) -> AESGCM:
        return AESGCM(
            HKDF(algorithm=SHA256(), length=32, salt=None, info=b"sightline sender " + sender).derive(self._key)
        )
