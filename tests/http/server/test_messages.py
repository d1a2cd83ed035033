"""Messages joined from frames: the same at every split of the bytes, and bounded."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wsproto.connection import Connection, ConnectionType
from wsproto.events import BytesMessage, Ping, TextMessage
from wsproto.frame_protocol import CloseReason, FrameProtocol, Opcode, ParseFailed

from sightline.http.server.messages import MessageReader

MESSAGES = st.lists(st.one_of(st.text(max_size=300), st.binary(max_size=300)), max_size=6)


@settings(max_examples=200, deadline=None)
@given(messages=MESSAGES, cuts=st.lists(st.integers(1, 200), min_size=1), pinged=st.booleans())
def test_messages_do_not_depend_on_how_the_bytes_are_split(
    messages: list[str | bytes], cuts: list[int], pinged: bool
) -> None:
    client = Connection(ConnectionType.CLIENT)
    wire = b""
    for message in messages:
        half = len(message) // 2
        for piece, is_last in ((message[:half], False), (message[half:], True)):
            if isinstance(piece, str):
                wire += client.send(TextMessage(piece, message_finished=is_last))
            else:
                wire += client.send(BytesMessage(piece, message_finished=is_last))
            if pinged and not is_last:
                wire += client.send(Ping(b"p"))
    reader = MessageReader(FrameProtocol(client=False, extensions=[]), 1_000)
    heard: list[object] = []
    at = number = 0
    while at < len(wire):
        step = cuts[number % len(cuts)]
        reader.feed(wire[at : at + step])
        at, number = at + step, number + 1
        for frame in reader.frames():
            if frame.opcode is Opcode.PING:
                assert frame.payload == b"p"
            else:
                heard.append(frame.payload)
    assert heard == messages


@pytest.mark.parametrize("piece", ["é" * 250, b"x" * 500], ids=["text", "bytes"])
def test_the_size_limit_counts_bytes_of_all_fragments(piece: str | bytes) -> None:
    client = Connection(ConnectionType.CLIENT)
    event = TextMessage if isinstance(piece, str) else BytesMessage
    reader = MessageReader(FrameProtocol(client=False, extensions=[]), 1_000)
    for _ in range(2):
        reader.feed(client.send(event(piece, message_finished=False)))
        assert list(reader.frames()) == []
    reader.feed(client.send(event(piece[:1], message_finished=False)))
    with pytest.raises(ParseFailed) as refused:
        list(reader.frames())
    assert refused.value.code is CloseReason.MESSAGE_TOO_BIG
