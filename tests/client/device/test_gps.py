"""Positions from gpsd and NMEA; what is no position is skipped, and a lost receiver proves nothing."""

import pytest
import trio

from sightline_client.device.gps import LOST_ACCURACY_M, GpsReceiver, NoFixError, parse_gpsd, parse_nmea

TPV = b'{"class":"TPV","mode":3,"lat":52.52,"lon":13.405,"eph":4.5,"track":370.0,"speed":1.5,"altMSL":34.0}'


def checked(body: bytes) -> bytes:
    """Add the checksum to a sentence."""
    total = 0
    for byte in body:
        total ^= byte
    return b"$" + body + f"*{total:02X}".encode()


def test_a_report_of_gpsd_is_read_with_its_accuracy() -> None:
    position = parse_gpsd(TPV)
    assert position is not None
    assert (position.lat, position.lng, position.accuracy_m) == (52.52, 13.405, 4.5)
    assert (position.heading_degrees, position.speed_mps, position.altitude_m) == (10.0, 1.5, 34.0)


@pytest.mark.parametrize(
    "line",
    [b'{"class":"TPV","mode":1}', b'{"class":"SKY"}', b"{", b"[]", b'{"class":"TPV","mode":3,"lat":"x","lon":1}'],
)
def test_reports_without_a_fix_are_skipped(line: bytes) -> None:
    assert parse_gpsd(line) is None


def test_a_gga_sentence_is_read_in_degrees() -> None:
    position = parse_nmea(checked(b"GNGGA,123519,4807.038,S,01131.000,W,1,08,2,545.4,M,46.9,M,,"))
    assert position is not None
    assert (position.lat, position.lng) == (-48.1173, -11.5166667)
    assert (position.accuracy_m, position.altitude_m) == (10.0, 545.4)


@pytest.mark.parametrize(
    "line",
    [
        b"$GPGGA,123519,4807.038,N,01131.000,E,1,08,0.9,545.4,M,46.9,M,,*00",
        checked(b"GPGGA,123519,4807.038,N,01131.000,E,0,08,0.9,545.4,M,46.9,M,,"),
        checked(b"GPGSV,1,1,00"),
        checked(b"GPGGA,1"),
        b"$GPGGA",
        b"\xff\xfe",
        b"",
    ],
)
def test_wrong_checksums_and_other_sentences_are_skipped(line: bytes) -> None:
    assert parse_nmea(line) is None


async def test_a_receiver_that_is_lost_keeps_its_place_without_proving_it() -> None:
    receiver = GpsReceiver("gpsd://127.0.0.1:0")
    with pytest.raises(NoFixError):
        receiver.position()
    released = trio.Event()

    async def serve(stream: trio.SocketStream) -> None:
        assert (await stream.receive_some(100)).startswith(b"?WATCH=")
        await stream.send_all(b'{"class":"VERSION"}\n' + TPV + b"\n")
        await released.wait()
        await stream.aclose()

    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, serve, [listener])
        receiver = GpsReceiver(f"gpsd://127.0.0.1:{listener.socket.getsockname()[1]}")
        nursery.start_soon(receiver.follow)
        await receiver.await_first()
        assert receiver.position().accuracy_m == 4.5
        released.set()
        with trio.fail_after(60):
            while receiver.position().accuracy_m != LOST_ACCURACY_M:  # noqa: ASYNC110  the receiver has no event for it
                await trio.sleep(0.01)
        assert (receiver.position().lat, receiver.position().lng) == (52.52, 13.405)
        nursery.cancel_scope.cancel()
