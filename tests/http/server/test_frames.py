"""WebSocket frames, with wsproto on the other side of the wire as the judge."""

from hypothesis import given, settings
from hypothesis import strategies as st
from wsproto.connection import Connection, ConnectionType
from wsproto.events import BytesMessage, Message, Ping, TextMessage

from sightline.http.server.frames import BINARY, PING, TEXT, FrameReader, decode_text, encode_frame

MESSAGES = st.lists(st.one_of(st.text(max_size=300), st.binary(max_size=300)), max_size=6)


@settings(max_examples=200, deadline=None)
@given(messages=MESSAGES, cuts=st.lists(st.integers(1, 200), min_size=1), pinged=st.booleans())
def test_what_a_client_says_is_read_however_it_arrives(
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
    reader = FrameReader(1_000)
    heard: list[str | bytes] = []
    at = number = 0
    while at < len(wire):
        step = cuts[number % len(cuts)]
        reader.feed(wire[at : at + step])
        at, number = at + step, number + 1
        while (frame := reader.next()) is not None:
            opcode, payload = frame
            if opcode == PING:
                assert payload == b"p"
            else:
                heard.append(decode_text(payload) if opcode == TEXT else payload)
    assert heard == messages


@settings(max_examples=100, deadline=None)
@given(messages=st.lists(st.one_of(st.text(max_size=300), st.binary(max_size=70_000)), max_size=4))
def test_what_the_server_says_is_understood(messages: list[str | bytes]) -> None:
    client = Connection(ConnectionType.CLIENT)
    for message in messages:
        is_text = isinstance(message, str)
        client.receive_data(encode_frame(TEXT, message.encode()) if is_text else encode_frame(BINARY, message))
        heard = [event.data for event in client.events() if isinstance(event, Message)]
        assert (("" if is_text else b"").join(heard)) == message
