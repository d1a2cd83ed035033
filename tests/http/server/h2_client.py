"""A client of HTTP/2 on any stream."""

import h2.config
import h2.connection
import h2.events
import trio

REST = [(":scheme", "http"), (":authority", "t"), ("x-request-id", "mine")]


class H2Client:
    """One connection, one request at a time."""

    def __init__(self, stream: trio.abc.Stream, *headers: tuple[str, str]) -> None:
        self.headers = headers
        self.stream = stream
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        self.h2.initiate_connection()

    async def ask(self, path: str, body: bytes = b"", method: str = "POST") -> tuple[dict[str, str], bytes]:
        stream = self.h2.get_next_available_stream_id()
        pairs = [(":method", method), (":path", path), *REST, *self.headers]
        self.h2.send_headers(stream, pairs, end_stream=not body)
        answered: dict[str, str] = {}
        data = b""
        while True:
            body = self._send_what_fits(stream, body)
            await self.stream.send_all(self.h2.data_to_send())
            received = await self.stream.receive_some(65536)
            assert received, "closed"
            for event in self.h2.receive_data(received):
                if isinstance(event, h2.events.ResponseReceived):
                    answered = dict(event.headers)
                elif isinstance(event, h2.events.DataReceived):
                    data += event.data
                    self.h2.acknowledge_received_data(event.flow_controlled_length, stream)
                elif isinstance(event, h2.events.StreamEnded):
                    return answered, data

    async def reset_one(self, path: str) -> h2.events.ConnectionTerminated | None:
        """Open a stream and reset it at once. Returns the server's GOAWAY, or None when it has read the reset."""
        stream = self.h2.get_next_available_stream_id()
        self.h2.send_headers(stream, [(":method", "GET"), (":path", path), *REST, *self.headers], end_stream=True)
        self.h2.reset_stream(stream)
        self.h2.ping(b"resetone")
        await self.stream.send_all(self.h2.data_to_send())
        while True:
            received = await self.stream.receive_some(65536)
            assert received, "closed without GOAWAY"
            events = self.h2.receive_data(received)
            for event in events:
                if isinstance(event, h2.events.ConnectionTerminated):
                    return event
            if any(isinstance(event, h2.events.PingAckReceived) for event in events):
                return None

    def _send_what_fits(self, stream: int, body: bytes) -> bytes:
        while body:
            size = min(16_000, len(body), self.h2.local_flow_control_window(stream))
            if size == 0:
                break
            self.h2.send_data(stream, body[:size], end_stream=size == len(body))
            body = body[size:]
        return body
