"""Runs the embedded chain: `python -m sightline.chain.embedded --data-dir DIR`.

When it serves, it prints `ready` with its port and the addresses as JSON. It exits when its standard input closes.
The parent process holds the other end of that pipe, so the child exits even when the parent is killed.
"""

import argparse
import fcntl
import json
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar, Final

import orjson
from eth_utils.address import to_canonical_address

from sightline.chain.contracts.terms import ADMIN_DELAY_S
from sightline.chain.embedded.deploy import RICH_WEI, ContractTerms, Treasury, address_of, load_keys, load_secret
from sightline.chain.embedded.machine import Machine
from sightline.chain.embedded.methods import HttpRequest, Methods, RpcError
from sightline.chain.rpc.guests import CPU_HEADER, GUEST_HEADER
from sightline.system.clock import SystemClock
from sightline.system.ids import SystemIds
from sightline.system.parent import leave_with_parent, say_ready

BODY_BYTES_MAX: Final = 4 * 1024 * 1024
BATCH_MAX: Final = 1_000
LOCAL_HOSTS: Final = frozenset({"127.0.0.1", "localhost"})
LOCK_WAIT_S: Final = 3.0
# py-evm runs nested calls as Python recursion, and the EVM allows a call depth of 1024.
THREAD_STACK_BYTES: Final = 128 * 1024 * 1024


def answer_one(methods: Methods, request: Any, caller: HttpRequest) -> dict[str, Any]:
    """Answer one JSON-RPC request object."""
    if not isinstance(request, dict) or not isinstance(request.get("method"), str):
        return {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "invalid request"}}
    response: dict[str, Any] = {"jsonrpc": "2.0", "id": request.get("id")}
    params = request.get("params") or []
    try:
        if not isinstance(params, list):
            raise RpcError(-32602, "params must be a list")
        response["result"] = methods.answer(request["method"], params, caller)
    except RpcError as error:
        response["error"] = {"code": error.code, "message": str(error)}
        if error.data is not None:
            response["error"]["data"] = error.data
    except Exception as error:  # noqa: BLE001  # one bad request must not end the chain
        print(f"{request['method']}: {error!r}", file=sys.stderr, flush=True)  # noqa: T201
        response["error"] = {"code": -32603, "message": "internal error"}
    return response


def answer_body(methods: Methods, body: bytes, caller: HttpRequest) -> bytes:
    """Answer a request body that holds one request or a batch."""
    try:
        # orjson and not json: the recursion limit is raised for py-evm, so nested brackets would overflow the C stack.
        request = orjson.loads(body)
    except orjson.JSONDecodeError:
        request = None
    if isinstance(request, list) and 0 < len(request) <= BATCH_MAX:
        methods.expect(
            [
                item["params"][0]
                for item in request
                if isinstance(item, dict) and item.get("method") == "eth_sendRawTransaction" and item.get("params")
            ]
        )
        return json.dumps([answer_one(methods, item, caller) for item in request]).encode()
    return json.dumps(answer_one(methods, request, caller)).encode()


def handler_class(methods: Methods) -> type[BaseHTTPRequestHandler]:
    """Build the HTTP handler: POST with a JSON-RPC body over keep-alive connections."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        wbufsize = -1
        timeout: ClassVar[float | None] = 120

        def do_POST(self) -> None:
            # DNS rebinding: a web page can resolve its own domain to this address; the Host header then names that
            # domain.
            if self.headers.get("Host", "").rpartition(":")[0] not in LOCAL_HOSTS:
                self.send_error(403)
                return
            length = int(self.headers.get("Content-Length") or 0)
            if not 0 < length <= BODY_BYTES_MAX:
                self.send_error(413)
                return
            caller = HttpRequest(is_guest=GUEST_HEADER in self.headers)
            body = answer_body(methods, self.rfile.read(length), caller)
            self.send_response(200)
            self.send_header(CPU_HEADER, str(round(caller.cpu_s * 1_000)))
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base's name
            """Write no access log: the parent process already logs its requests."""

    return Handler


class Server(ThreadingHTTPServer):
    """An HTTP server whose connection threads are daemons, so that they do not delay the exit."""

    daemon_threads = True
    request_queue_size = 128


def hold_directory(directory: Path) -> int:
    """Take the lock on the directory; wait for an earlier process that still holds it."""
    descriptor = os.open(directory / "chain.lock", os.O_RDWR | os.O_CREAT, 0o600)
    deadline = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                sys.exit(f"another embedded chain uses {directory}")
            time.sleep(0.05)
        else:
            return descriptor


def main() -> None:
    """Serve until standard input closes."""
    parser = argparse.ArgumentParser(prog="sightline.chain.embedded")
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--chain-id", type=int, required=True)
    parser.add_argument("--max-fee-bps", type=int, required=True)
    parser.add_argument("--session-cap-micro", type=int, required=True)
    parser.add_argument("--admin-delay-s", type=int, default=ADMIN_DELAY_S)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--consent-required", action="store_true")
    parser.add_argument("--escrow", action="store_true")
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Exit at once: every mined block is already committed to disk.
    leave_with_parent(lambda: os._exit(0))
    options.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = hold_directory(options.data_dir)
    ids = SystemIds()
    keys = load_keys(options.data_dir, ids)
    secret = load_secret(options.data_dir, ids)
    rich = {address_of(keys["deployer"]): RICH_WEI, address_of(keys["relayer"]): RICH_WEI}
    threading.stack_size(THREAD_STACK_BYTES)
    machine = Machine(options.data_dir / "chain.sqlite", chain_id=options.chain_id, rich=rich, clock=SystemClock())
    treasury = Treasury(machine, keys)
    treasury.deploy(
        ContractTerms(
            is_escrow=options.escrow,
            max_fee_bps=options.max_fee_bps,
            session_cap_micro=options.session_cap_micro,
            consent_required=options.consent_required,
            admin_delay_s=options.admin_delay_s,
        )
    )
    trusted = frozenset(to_canonical_address(address_of(key)) for key in keys.values())
    methods = Methods(machine, treasury, secret, trusted)
    server = Server(("127.0.0.1", options.port), handler_class(methods))
    report = {
        "port": server.server_address[1],
        "chainId": machine.chain_id,
        "genesisHash": machine.genesis_hash,
        "usdcAddress": machine.store.meta("usdcAddress"),
        "settlementAddress": machine.store.meta("settlementAddress"),
        "feeReceiver": machine.store.meta("feeReceiver"),
        "relayer": address_of(keys["relayer"]),
    }
    (options.data_dir / "endpoint.json").write_text(json.dumps(report), encoding="ascii")
    say_ready(json.dumps(report))
    try:
        server.serve_forever()
    finally:
        os.close(lock)


if __name__ == "__main__":
    main()
