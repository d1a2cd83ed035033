"""Runs SpiceDB as a library, from its npm package, behind a gRPC port.

Run as a program with the library's path. It prints `ready host:port` and exits when its standard input closes.
Requests and answers pass as bytes. The library offers unary calls as functions and streams on a socket of its own.
"""

import ctypes
import json
import re
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

UNARY = {
    "/authzed.api.v1.PermissionsService/CheckPermission": "spicedb_permissions_check_permission",
    "/authzed.api.v1.PermissionsService/WriteRelationships": "spicedb_permissions_write_relationships",
    "/authzed.api.v1.SchemaService/ReadSchema": "spicedb_schema_read_schema",
    "/authzed.api.v1.SchemaService/WriteSchema": "spicedb_schema_write_schema",
}
STREAMS = {"/authzed.api.v1.PermissionsService/ReadRelationships"}
# The library returns errors as text: "rpc error: code = FailedPrecondition desc = ...".
STATUS = re.compile(r"code = (\w+) desc = (.*)", re.DOTALL)
CODES = {code.name.replace("_", "").lower(): code for code in grpc.StatusCode}


class Library:
    """The functions of libspicedb."""

    def __init__(self, path: str) -> None:
        self.library = ctypes.CDLL(path)
        self.library.spicedb_start.restype = ctypes.c_void_p
        self.library.spicedb_start.argtypes = [ctypes.c_char_p]
        self.library.spicedb_free.argtypes = [ctypes.c_void_p]
        self.library.spicedb_free_bytes.argtypes = [ctypes.c_void_p]
        pointer = self.library.spicedb_start(b"{}")
        answer = json.loads(ctypes.string_at(pointer))
        self.library.spicedb_free(pointer)
        assert answer["success"], answer
        self.handle = answer["data"]["handle"]
        prefix = "unix://" if answer["data"]["streaming_transport"] == "unix" else ""
        self.streams = grpc.insecure_channel(prefix + answer["data"]["streaming_address"])

    def call(self, name: str, request: bytes) -> tuple[bytes, str | None]:
        """Return the answer, or the error's text."""
        answer, length, error = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_void_p()
        getattr(self.library, name)(
            ctypes.c_ulonglong(self.handle),
            request,
            ctypes.c_int(len(request)),
            ctypes.byref(answer),
            ctypes.byref(length),
            ctypes.byref(error),
        )
        if error.value:
            text = ctypes.string_at(error.value).decode()
            self.library.spicedb_free(error)
            return b"", text
        found = ctypes.string_at(answer.value, length.value) if answer.value else b""
        self.library.spicedb_free_bytes(answer)
        return found, None


class Forward(grpc.GenericRpcHandler):  # type: ignore[misc]  grpc has no types
    """Forwards every call to the library."""

    def __init__(self, library: Library) -> None:
        self.library = library

    def service(self, details: Any) -> Any:
        if details.method in UNARY:
            return grpc.unary_unary_rpc_method_handler(self._unary(UNARY[details.method]))
        if details.method in STREAMS:
            return grpc.unary_stream_rpc_method_handler(self._stream(details.method))
        return None

    def _unary(self, name: str) -> Callable[[bytes, grpc.ServicerContext], bytes]:
        def handle(request: bytes, context: grpc.ServicerContext) -> bytes:
            answer, error = self.library.call(name, request)
            if error is not None:
                found = STATUS.search(error)
                code = CODES.get(found[1].lower()) if found else None
                context.abort(code or grpc.StatusCode.UNKNOWN, found[2] if found else error)
            return answer

        return handle

    def _stream(self, method: str) -> Callable[[bytes, grpc.ServicerContext], Iterator[bytes]]:
        def handle(request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
            try:
                yield from self.library.streams.unary_stream(method)(request, timeout=context.time_remaining())
            except grpc.RpcError as error:
                context.abort(error.code(), error.details())

        return handle


def main() -> None:
    server = grpc.server(ThreadPoolExecutor(8), handlers=[Forward(Library(sys.argv[1]))])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(f"ready 127.0.0.1:{port}", flush=True)  # noqa: T201  the parent reads it
    sys.stdin.read()
    server.stop(None)


if __name__ == "__main__":
    main()
