"""A SpiceDB that answers correctly until it is told to lie, over real gRPC."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
from authzed.api.v1 import CheckPermissionResponse, ReadRelationshipsResponse
from authzed.api.v1.permission_service_pb2_grpc import add_PermissionsServiceServicer_to_server
from authzed.api.v1.schema_service_pb2_grpc import add_SchemaServiceServicer_to_server

from tests.contract.spicedb_servicer import Graph, Permissions, Refusing, Row, Schemas, relationship_of

STREAM_S = 90.0
Answer = Callable[[Any, grpc.ServicerContext], Any]
OTHER_WALLET = "0x" + "9" * 40


def a_row(request: Any, number: int = 0) -> Row:
    """A row that says yes to a request, or to another one."""
    wanted = request.relationship_filter
    subject = wanted.optional_subject_filter
    resource = wanted.optional_resource_id or f"00000000-0000-4000-8000-{number:012}"
    return wanted.resource_type, resource, "owner", "wallet", subject.optional_subject_id or OTHER_WALLET


def answers(*rows: Row) -> Iterator[ReadRelationshipsResponse]:
    for row in rows:
        yield ReadRelationshipsResponse(relationship=relationship_of(row))


def permissionship(value: int) -> Answer:
    return lambda request, context: CheckPermissionResponse(permissionship=value)


class Liar:
    """What the server answers in place of the truth, for reads (`read`), checks and writes. None: the truth."""

    def __init__(self) -> None:
        self.graph = Graph()
        self.read: Answer | None = None
        self.check: Answer | None = None
        self.write: Answer | None = None
        self.raw: bytes | None = None
        self.endpoint = ""
        self.released = threading.Event()

    def tell_the_truth(self) -> None:
        self.read = self.check = self.write = self.raw = None
        self.released.set()
        self.released = threading.Event()

    def hang(self, request: Any, context: grpc.ServicerContext) -> Any:
        """Answer nothing for a long time."""
        self.released.wait(STREAM_S)
        context.abort(grpc.StatusCode.UNAVAILABLE, "late")

    def for_another_resource(self, request: Any, context: grpc.ServicerContext) -> Any:
        kind, _, relation, *subject = a_row(request)
        return answers((kind, "99999999-9999-4999-8999-999999999999", relation, subject[0], subject[1]))

    def for_another_wallet(self, request: Any, context: grpc.ServicerContext) -> Any:
        return answers((*a_row(request)[:4], OTHER_WALLET))

    def without_end(self, request: Any, context: grpc.ServicerContext) -> Any:
        number = 0
        while context.is_active():
            number += 1
            yield from answers(a_row(request, number))

    def huge(self, request: Any, context: grpc.ServicerContext) -> Any:
        while context.is_active():
            yield from answers((*a_row(request)[:4], "x" * 900_000))

    def larger_than_a_message(self, request: Any, context: grpc.ServicerContext) -> Any:
        return answers((*a_row(request)[:4], "x" * 3_900_000))


class Lying(Permissions):
    def __init__(self, liar: Liar) -> None:
        super().__init__(liar.graph)
        self.liar = liar

    def CheckPermission(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        return (self.liar.check or super().CheckPermission)(request, context)

    def ReadRelationships(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        yield from (self.liar.read or super().ReadRelationships)(request, context)

    def WriteRelationships(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        return (self.liar.write or super().WriteRelationships)(request, context)


class Garbling(grpc.ServerInterceptor):  # type: ignore[misc]  grpc has no types
    """Answers with bytes that are no message of the protocol."""

    def __init__(self, liar: Liar) -> None:
        self._liar = liar

    def intercept_service(self, continuation: Any, details: Any) -> Any:
        raw = self._liar.raw
        if raw is None:
            return continuation(details)
        if details.method.endswith("/ReadRelationships"):
            return grpc.unary_stream_rpc_method_handler(lambda request, context: iter([raw]))
        return grpc.unary_unary_rpc_method_handler(lambda request, context: raw)


@contextmanager
def a_liar() -> Iterator[Liar]:
    """Run the server during the block; its key is that of `spicedb_servicer`."""
    liar = Liar()
    server = grpc.server(ThreadPoolExecutor(32), interceptors=[Refusing(), Garbling(liar)])
    add_SchemaServiceServicer_to_server(Schemas(liar.graph), server)
    add_PermissionsServiceServicer_to_server(Lying(liar), server)
    liar.endpoint = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield liar
    finally:
        liar.tell_the_truth()
        server.stop(None).wait(5)
