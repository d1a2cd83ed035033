"""Somebody with the token of NATS and without the service's secrets: what they publish is counted, and nothing else."""

import trio
from structlog.testing import capture_logs

from sightline.cluster.bus import nats_wire
from sightline.cluster.bus.nats import NatsBus, NatsOptions, open_nats_bus
from sightline.cluster.bus.nats_connection import Hello, NatsConnection, connect_to
from sightline.ports.bus import Received

from .nats_process import NatsProcess, until

DIGITS = b"9" * 3_000
"""As many as a NATS server passes on."""


def options_of(server: NatsProcess, incarnation: str, key: bytes = b"k" * 32) -> NatsOptions:
    return NatsOptions(servers=(server.url,), cluster="forged", key=key, incarnation=incarnation)


async def an_outsider(server: NatsProcess, recorded: list[tuple[bytes, bytes, bytes]]) -> NatsConnection:
    """A connection that hears everything."""

    def take(subject: bytes, reply: bytes, payload: bytes, _is_undelivered: bool) -> None:
        recorded.append((subject, reply, payload))

    hello = Hello(name="outsider", subjects=("sl.>",), tls=None, credentials=None)
    return await connect_to(server.url, hello, take)


async def until_refused(bus: NatsBus, count: int) -> None:
    await until(lambda: bus.statistics().frames_not_authentic >= count)


async def test_forged_and_replayed_messages_are_refused_and_true_ones_arrive(nats_server: NatsProcess) -> None:
    recorded: list[tuple[bytes, bytes, bytes]] = []
    outsider = await an_outsider(nats_server, recorded)
    async with (
        open_nats_bus(options_of(nats_server, "one")) as one,
        open_nats_bus(options_of(nats_server, "two")) as two,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(outsider.run)
        one.send("two", b"secret")
        assert await two.receive() == Received(b"secret", "one")
        await until(lambda: len(recorded) == 1)
        subject, reply, sealed = recorded[0]
        assert b"secret" not in sealed
        with capture_logs() as logs:
            forged = [
                (subject, reply, sealed),  # replayed
                (subject, reply.replace(b".1", b".99999999"), sealed),
                (subject, reply, b"\x94\x01\xa1x\x00\x05"),  # [1, "x", 0, 5], which ended every server
                (subject, b"x." + DIGITS, b"\x94\x01\xa1x\x00\x05"),
                (b"sl.forged.u.two." + DIGITS, b"", b""),
                (subject, b"", b""),
            ]
            for to, answer, payload in forged:
                outsider.publish(to.decode(), answer.decode() or "x", payload)
            await until_refused(two, len(forged))
        assert [entry["event"] for entry in logs].count("bus_frame_not_authentic") == 1, "once in 10 s"
        one.send("two", b"true")
        assert await two.receive() == Received(b"true", "one")
        nursery.cancel_scope.cancel()
    await outsider.abort()


async def test_services_with_other_secrets_share_a_nats_server_and_a_name_and_take_nothing_from_each_other(
    nats_server: NatsProcess,
) -> None:
    async with (
        open_nats_bus(options_of(nats_server, "one", b"x" * 32)) as stranger,
        open_nats_bus(options_of(nats_server, "two")) as two,
        open_nats_bus(options_of(nats_server, "three")) as three,
    ):
        stranger.send("two", b"from another service")
        await until_refused(two, 1)
        three.send("two", b"own")
        assert await two.receive() == Received(b"own", "three")


def test_a_nats_server_that_sends_absurd_sizes_is_given_up_and_nothing_raises_but_its_error() -> None:
    got: list[bytes] = []
    parser = nats_wire.Parser(lambda subject, *_: got.append(subject), lambda name, _: got.append(name))
    parser.feed(b"MSG a 1 " + DIGITS * 2 + b"\r\n")
    parser.feed(b"HMSG a 1 " + DIGITS * 2 + b" 5\r\n")
    assert got == [b"MSG", b"HMSG"], "unknown operations, which end the connection"
