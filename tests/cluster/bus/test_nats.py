"""The bus on NATS: servers that hang, leave or refuse, TLS, credentials, and what is logged."""

import base64
import json
import signal
import socket
import ssl
import struct
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeAlias

import nkeys
import pytest
import trio
import trio.lowlevel
from structlog.testing import capture_logs
from trio.testing import MockClock

from sightline.bootstrap.listeners.own_tls import issue
from sightline.cluster.bus.nats import NatsBus, NatsOptions, client_tls, open_nats_bus
from sightline.domain.errors import BusUnavailableError
from sightline.domain.value import replace
from sightline.ports.bus import Interrupted, Received
from sightline.system.clock import SystemClock
from sightline.system.ids import SystemIds

from .certificates import CLIENT, issue_certificate
from .nats_process import TOKEN, NatsProcess, refusal_of, until

KEY = b"k" * 32
StartNats: TypeAlias = Callable[..., NatsProcess]


def options_of(*servers: NatsProcess, incarnation: str = "one", start_timeout_s: float = 10.0) -> NatsOptions:
    urls = tuple(server.url for server in servers)
    return NatsOptions(servers=urls, cluster="test", key=KEY, incarnation=incarnation, start_timeout_s=start_timeout_s)


async def until_connected(*buses: NatsBus, connections: int) -> None:
    await until(lambda: all(bus.is_connected and bus.statistics().connections >= connections for bus in buses))


async def test_a_nats_server_that_hangs_is_given_up_and_what_it_kept_never_overtakes(
    tmp_path: Path, start_nats: StartNats
) -> None:
    server = start_nats(tmp_path)
    async with open_nats_bus(options_of(server)) as one, open_nats_bus(options_of(server, incarnation="two")) as two:
        server.send_signal(signal.SIGSTOP)
        sent = 0
        with trio.fail_after(60):
            while one.is_connected or two.is_connected:
                sent += one.send("two", b"old %d" % sent) is not None
                await trio.sleep(0.01)
        assert sent
        assert one.send("two", b"while cut off") is None
        server.send_signal(signal.SIGCONT)
        await until_connected(one, two, connections=2)
        assert one.send("two", b"new") is not None
        arrived = []
        with trio.fail_after(60):
            while not arrived or arrived[-1] != Received(b"new", "one"):
                arrival = await two.receive()
                if arrival != Interrupted():
                    arrived.append(arrival)
        assert arrived[:-1] == [Received(b"old %d" % number, "one") for number in range(len(arrived) - 1)]
        one.send("two", b"last")
        with trio.fail_after(60):
            assert await two.receive() == Received(b"last", "one"), "an old frame came after a new one"


async def test_a_server_in_lame_duck_mode_is_left_for_another_one(tmp_path: Path, start_nats: StartNats) -> None:
    servers = [start_nats(tmp_path / name) for name in ("first", "second")]
    with capture_logs() as logs:
        async with open_nats_bus(options_of(*servers)) as bus:
            (connected,) = [entry["server"] for entry in logs if entry["event"] == "bus_connected"]
            leaving = next(server for server in servers if connected.endswith(f":{server.port}"))
            leaving.send_signal(signal.SIGUSR2)
            await until_connected(bus, connections=2)
            assert leaving.process.poll() is None, "it was left before it ended"


async def test_a_wrong_token_fails_the_start_and_no_token_is_logged(
    nats_server: NatsProcess, mock_clock: MockClock
) -> None:
    url = nats_server.url.replace(TOKEN, "not-the-token")
    options = NatsOptions(servers=(url,), cluster="test", key=KEY, incarnation="one")
    said = await refusal_of(options, mock_clock)
    assert "Authorization Violation" in said
    assert "not-the-token" not in f"{said} {options!r}"


async def test_the_start_fails_within_its_limit_when_no_server_listens(tmp_path: Path, start_nats: StartNats) -> None:
    server = start_nats(tmp_path)
    server.kill()
    with trio.fail_after(60), pytest.raises(BusUnavailableError, match=f"127.0.0.1:{server.port}"):
        async with open_nats_bus(options_of(server, start_timeout_s=2.0)):
            pass


async def test_frames_that_were_accepted_are_sent_when_the_bus_is_closed(nats_server: NatsProcess) -> None:
    async with open_nats_bus(options_of(nats_server, incarnation="two")) as two:
        async with open_nats_bus(options_of(nats_server)) as one:
            for number in range(100):
                one.send("two", b"%d" % number)
        with trio.fail_after(60):
            assert [await two.receive() for _ in range(100)] == [
                Received(b"%d" % number, "one") for number in range(100)
            ]


async def test_frames_above_the_limit_of_arrivals_are_counted_as_lost(nats_server: NatsProcess) -> None:
    small = replace(options_of(nats_server, incarnation="two"), incoming_bytes_max=1_000)
    async with open_nats_bus(small) as two, open_nats_bus(options_of(nats_server)) as one:
        with capture_logs() as logs:
            for _ in range(5):
                one.send("two", b"x" * 300)
            await until(lambda: two.statistics().frames_lost == 2)
        assert [entry["total"] for entry in logs if entry["event"] == "bus_frames_lost"] == [1], "once in 10 s"
        assert [await two.receive() for _ in range(3)] == [Received(b"x" * 300, "one")] * 3


async def test_tls_with_an_own_authority_and_a_client_certificate(tmp_path: Path, start_nats: StartNats) -> None:
    issued = issue(tmp_path, SystemIds(), SystemClock().now_ms(), None, "host")
    authority = tmp_path / "tls" / "ca.pem"
    server = start_nats(
        tmp_path,
        f'authorization {{ token: "{TOKEN}" }}\n'
        f'tls {{ cert_file: "{issued.certificate}", key_file: "{issued.key}", ca_file: "{authority}", verify: true }}',
        scheme="tls",
    )

    def options_with(tls: ssl.SSLContext | None, start_timeout_s: float) -> NatsOptions:
        return NatsOptions(
            servers=(server.url,),
            cluster="test",
            key=KEY,
            incarnation="one",
            tls=tls,
            start_timeout_s=start_timeout_s,
        )

    async with open_nats_bus(
        options_with(client_tls(authority, *issue_certificate(authority.parent, "client", CLIENT)), 10)
    ):
        pass
    for refused in (client_tls(authority, None, None), None):
        with pytest.raises(BusUnavailableError):
            async with open_nats_bus(options_with(refused, 0.3)):
                pass


def a_key(kind: int) -> nkeys.KeyPair:
    return nkeys.from_seed(nkeys.encode_seed(SystemIds().token_bytes(32), kind))


def a_claim(issuer: nkeys.KeyPair, subject: nkeys.KeyPair, **claims: object) -> str:
    """A JSON web token as NATS has them: about `subject`, signed by `issuer`."""
    ids = {"iss": issuer.public_key.decode(), "sub": subject.public_key.decode()}
    parts = ({"typ": "JWT", "alg": "ed25519-nkey"}, {"iat": 1, "name": "test", **ids, "nats": {"version": 2, **claims}})
    text = ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)
    return f"{text}.{base64.urlsafe_b64encode(issuer.sign(text.encode())).decode().rstrip('=')}"


async def test_a_credentials_file_lets_the_server_in(
    tmp_path: Path, start_nats: StartNats, mock_clock: MockClock
) -> None:
    kinds = (nkeys.PREFIX_BYTE_OPERATOR, nkeys.PREFIX_BYTE_ACCOUNT, nkeys.PREFIX_BYTE_USER)
    operator, account, user = map(a_key, kinds)
    unlimited = dict.fromkeys(("subs", "data", "payload"), -1)
    limits = unlimited | dict.fromkeys(("imports", "exports", "conn", "leaf"), -1) | {"wildcards": True}
    server = start_nats(
        tmp_path,
        f"operator: {a_claim(operator, operator, type='operator')}\nresolver: MEMORY\nresolver_preload: "
        f"{{ {account.public_key.decode()}: {a_claim(operator, account, type='account', limits=limits)} }}",
    )
    credentials = tmp_path / "server.creds"
    credentials.write_text(
        f"-----BEGIN NATS USER JWT-----\n{a_claim(account, user, type='user', **unlimited)}\n"
        f"------END NATS USER JWT------\n\n-----BEGIN USER NKEY SEED-----\n{user.seed.decode()}\n"
        "------END USER NKEY SEED------\n"
    )
    url = f"nats://127.0.0.1:{server.port}"
    options = NatsOptions(servers=(url,), cluster="test", key=KEY, incarnation="one", credentials=credentials)
    async with open_nats_bus(options) as bus:
        assert bus.is_connected
    assert "Authorization Violation" in await refusal_of(replace(options, credentials=None), mock_clock)


async def test_nothing_is_sent_without_tls_when_tls_is_wanted(nats_server: NatsProcess, mock_clock: MockClock) -> None:
    url = nats_server.url.replace("nats://", "tls://")
    options = NatsOptions(servers=(url,), cluster="test", key=KEY, incarnation="one")
    assert "does not offer TLS" in await refusal_of(options, mock_clock)


async def test_a_connection_that_is_reset_while_frames_are_sent_is_made_again(
    tmp_path: Path, start_nats: StartNats
) -> None:
    server = start_nats(tmp_path)
    resets: list[Callable[[], None]] = []

    async def relay(client: trio.SocketStream) -> None:
        def reset() -> None:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.socket.close()
            nursery.cancel_scope.cancel()

        async def copy(source: trio.SocketStream, sink: trio.SocketStream) -> None:
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                async for chunk in source:
                    await sink.send_all(chunk)

        async with await trio.open_tcp_stream("127.0.0.1", server.port) as upstream, trio.open_nursery() as nursery:
            resets.append(reset)
            nursery.start_soon(copy, client, upstream)
            nursery.start_soon(copy, upstream, client)

    async with trio.open_nursery() as nursery:
        (listener,) = await nursery.start(partial(trio.serve_tcp, relay, 0, host="127.0.0.1"))
        url = f"nats://{TOKEN}@127.0.0.1:{listener.socket.getsockname()[1]}"
        async with open_nats_bus(replace(options_of(server), servers=(url,))) as bus:
            for connections in range(1, 6):
                await until_connected(bus, connections=connections)
                resets[-1]()
                with trio.fail_after(60):
                    while bus.statistics().connections == connections:
                        bus.send("two", b"x")
                        await trio.lowlevel.checkpoint()
            await until_connected(bus, connections=6)
            assert bus.send("two", b"last") is not None
        nursery.cancel_scope.cancel()
