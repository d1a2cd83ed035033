"""Runs an ASGI application on its listeners.

One nursery holds a task per listener, a task per connection, and the sweeper that checks all deadlines. Exceptions of a
connection do not reach it. At a stop the listeners and idle connections close. A client that was active in the last
0.1 s may send one more request, which is answered with `Connection: close`. Requests in flight have `drain_s` to finish
and are then cancelled.
"""

import errno
import socket
import ssl
from collections import Counter
from functools import partial

import structlog
import trio

from sightline.http.server.asgi import ASGIApp, ClientGoneError
from sightline.http.server.connection import LAST_REQUEST_S, Connection
from sightline.http.server.http2.connection import PREFACE, Http2Server
from sightline.http.server.lifespan import lifespan
from sightline.http.server.options import Bound, Fault, ListenerOptions, ServerOptions, TlsOptions
from sightline.http.server.passing import ConnectionPassing
from sightline.http.server.scope import Peer
from sightline.http.server.shared import Shared
from sightline.http.server.transport import SocketTransport, StreamTransport

log = structlog.get_logger()

_TURNING_AWAY_MAX = 64
_OUT_OF_RESOURCES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_OUT_OF_RESOURCES_PAUSE_S = 0.1


async def serve(
    app: ASGIApp,
    options: ServerOptions,
    *,
    shutdown: trio.Event,
    task_status: trio.TaskStatus[list[Bound]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until `shutdown` is set and everything in flight has ended.

    Reports the bound addresses, in the order of `options.listeners`, once connections are accepted.

    Raises:
        OSError: If an address cannot be bound.
        ssl.SSLError: If a certificate cannot be loaded.
        LifespanError: If the application fails to start.

    Cancellation: connections are cut; the application's lifespan still ends.
    """
    listeners = [_Listener(listener) for listener in options.listeners]
    try:
        for listener in listeners:
            listener.listen()
        async with lifespan(app, options.startup_s):
            await _Server(app, options, listeners).run(shutdown, task_status)
    finally:
        for listener in listeners:
            for sock in listener.close():
                sock.close()


class _Listener:
    def __init__(self, options: ListenerOptions) -> None:
        self.options = options
        self.tls = None if options.tls is None else _make_tls(options.tls)
        family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
        self.socket = options.sock or socket.socket(family, socket.SOCK_STREAM)
        self.bound = Bound(options.host, options.port, self.tls is not None)

    def listen(self) -> None:
        self.socket.setblocking(False)
        if self.options.sock is None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.socket.bind((self.options.host, self.options.port))
        self.socket.listen(self.options.backlog)
        host, port = self.socket.getsockname()[:2]
        self.bound = Bound(host, port, self.tls is not None)

    def close(self) -> list[socket.socket]:
        """Accept no further connections; returns those that other processes have given to this one."""
        given = [] if self.options.passing is None else self.options.passing.close()
        if self.socket.fileno() >= 0:
            trio.lowlevel.notify_closing(self.socket)
            self.socket.close()
        return given


def _make_tls(options: TlsOptions) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # RFC 9113, 9.2.1.
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(list(options.alpn))
    context.load_cert_chain(options.cert_file, options.key_file, options.key_password)
    return context


class _Server:
    def __init__(self, app: ASGIApp, options: ServerOptions, listeners: list[_Listener]) -> None:
        self._options = options
        self._listeners = listeners
        self._shared = Shared(app, options)
        self._h2 = Http2Server(self._shared)
        self._per_ip: Counter[str] = Counter()
        self._count = 0
        self._turning_away = 0
        self._silent: set[trio.CancelScope] = set()
        """Of connections that have sent nothing, where they may be passed to another process."""
        self._idle = trio.Event()
        self._opened = trio.Event()
        """Set when a connection opens while no other one is open."""

    async def run(self, shutdown: trio.Event, task_status: trio.TaskStatus[list[Bound]]) -> None:
        self._shared.read_clock()
        async with trio.open_nursery() as connections:
            self._shared.nursery = connections
            async with trio.open_nursery() as accepting:
                for listener in self._listeners:
                    accepting.start_soon(self._accept, listener, connections)
                    if listener.options.passing is not None:
                        accepting.start_soon(self._take_passed, listener, listener.options.passing, connections)
                connections.start_soon(self._sweep)
                task_status.started([listener.bound for listener in self._listeners])
                await shutdown.wait()
                accepting.cancel_scope.cancel()
            await self._drain(connections)
            connections.cancel_scope.cancel()

    async def _drain(self, connections: trio.Nursery) -> None:
        self._shared.draining = True
        for listener in self._listeners:
            for sock in listener.close():
                self._admit_passed(listener, sock, connections)
        await self._h2.drain()
        for connection in tuple(self._shared.open):
            connection.drain()
        if self._count:
            with trio.move_on_after(self._options.drain_s):
                with trio.move_on_after(LAST_REQUEST_S):
                    await self._idle.wait()
                for scope in self._silent:
                    scope.cancel()
                for connection in tuple(self._shared.open):
                    connection.drain()
                await self._idle.wait()
        log.info("http_drained", cut=self._count)

    async def _sweep(self) -> None:
        while True:
            if not self._count:
                self._opened = trio.Event()
                await self._opened.wait()
            await trio.sleep(self._options.sweep_s)
            self._shared.read_clock()
            now = trio.current_time()
            for connection in tuple(self._shared.open):
                try:
                    connection.sweep(now)
                    if self._shared.draining:
                        connection.drain()
                except Exception:
                    log.exception("http_sweep_failed")

    async def _accept(self, listener: _Listener, connections: trio.Nursery) -> None:
        while True:
            await trio.lowlevel.wait_readable(listener.socket)
            for _ in range(listener.options.accept_batch):
                try:
                    sock, address = listener.socket.accept()
                except BlockingIOError:
                    break
                except OSError as error:
                    if error.errno in _OUT_OF_RESOURCES:
                        log.warning("http_accept_failed", error=error.strerror)
                        await trio.sleep(_OUT_OF_RESOURCES_PAUSE_S)
                    break
                self._admit(listener, sock, address[0], address[1], connections)

    async def _take_passed(self, listener: _Listener, passing: ConnectionPassing, connections: trio.Nursery) -> None:
        """Serve connections that other processes accepted."""
        async for sock in passing.received():
            self._admit_passed(listener, sock, connections)

    def _admit_passed(self, listener: _Listener, sock: socket.socket, connections: trio.Nursery) -> None:
        try:
            address = sock.getpeername()
        except OSError:  # the client has gone
            sock.close()
            return
        self._admit(listener, sock, address[0], address[1], connections, is_passed=True)

    def _admit(
        self,
        listener: _Listener,
        sock: socket.socket,
        host: str,
        port: int,
        connections: trio.Nursery,
        *,
        is_passed: bool = False,
    ) -> None:
        limits = self._options.limits
        proxies = listener.options.trusted_proxies
        is_proxy = proxies.trusts(host)
        counted = not is_proxy and host not in limits.per_ip_exempt
        crowded = counted and self._per_ip[host] >= limits.connections_per_ip_max
        if crowded or self._count >= limits.connections_max:
            self._turn_away(listener, sock)
            return
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            server = sock.getsockname()[:2]
        except OSError:
            sock.close()
            return
        peer = Peer(
            (host, port),
            server,
            secure=listener.tls is not None,
            proxies=proxies if is_proxy else None,
        )
        if not self._count:
            self._shared.read_clock()
            self._opened.set()
        self._count += 1
        if counted:
            self._per_ip[host] += 1
        passing = None if is_passed else listener.options.passing
        connections.start_soon(self._connect, listener, sock, peer, counted, passing)

    def _turn_away(self, listener: _Listener, sock: socket.socket) -> None:
        """Answer 503 to a connection over the limit; close without an answer if too many are being refused."""
        log.info("http_connection_refused", connections=self._count)
        if listener.tls is not None or self._turning_away >= _TURNING_AWAY_MAX:
            sock.close()
            return
        sock.setblocking(False)
        self._turning_away += 1
        self._shared.spawn(partial(self._say_no, sock))

    async def _say_no(self, sock: socket.socket) -> None:
        transport = SocketTransport(sock, self._options.limits.write_s)
        try:
            with trio.move_on_after(self._options.limits.linger_s):
                await transport.send(self._shared.encode_fault(Fault(503, "http:connections")))
                await transport.finish()
                while await transport.receive():
                    continue
        except ClientGoneError:
            pass
        finally:
            self._turning_away -= 1
            sock.close()

    async def _connect(
        self,
        listener: _Listener,
        sock: socket.socket,
        peer: Peer,
        counted: bool,
        passing: ConnectionPassing | None,
    ) -> None:
        try:
            if passing is not None and await self._is_passed_or_idle(passing, sock):
                return
            if listener.tls is not None:
                await self._serve_tls(listener.tls, sock, peer)
            elif listener.options.h2c:
                await self._serve_h2c(sock, peer)
            else:
                transport = SocketTransport(sock, self._options.limits.write_s)
                await Connection(self._shared, transport, peer).run()
        except* Exception:
            log.exception("http_connection_failed")
        finally:
            sock.close()
            self._count -= 1
            if counted:
                self._forget(peer.client[0])
            if self._count == 0 and self._shared.draining:
                self._idle.set()

    async def _is_passed_or_idle(self, passing: ConnectionPassing, sock: socket.socket) -> bool:
        """Wait for the first bytes. Return whether another process serves them, or none came before the idle timeout
        or the drain: the connection is then closed here."""
        with trio.move_on_after(self._options.limits.idle_s) as scope:
            self._silent.add(scope)
            try:
                return await passing.give(sock)
            finally:
                self._silent.discard(scope)
        return True

    def _forget(self, host: str) -> None:
        self._per_ip[host] -= 1
        if self._per_ip[host] <= 0:
            del self._per_ip[host]

    async def _serve_tls(self, context: ssl.SSLContext, sock: socket.socket, peer: Peer) -> None:
        limits = self._options.limits
        tcp = trio.SocketStream(trio.socket.from_stdlib_socket(sock))
        stream = trio.SSLStream(tcp, context, server_side=True, https_compatible=True)
        try:
            with trio.fail_after(limits.handshake_s):
                await stream.do_handshake()
        except (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError, ssl.SSLError):
            await trio.aclose_forcefully(stream)
            return
        if stream.selected_alpn_protocol() == "h2":
            await self._h2.run(stream, peer)
        else:
            await Connection(self._shared, StreamTransport(stream, limits.write_s), peer).run()

    async def _serve_h2c(self, sock: socket.socket, peer: Peer) -> None:
        limits = self._options.limits
        transport = SocketTransport(sock, limits.write_s)
        first = b""
        with trio.move_on_after(limits.head_s):
            while len(first) < len(PREFACE) and PREFACE.startswith(first):
                data = await transport.receive()
                if not data:
                    break
                first += data
        if first.startswith(PREFACE):
            tcp = trio.SocketStream(trio.socket.from_stdlib_socket(sock))
            await self._h2.run(tcp, peer, first)
        else:
            await Connection(self._shared, transport, peer, first).run()
