"""A server of SpiceDB's protobuf definition, with the part of its behaviour that the adapter uses.

Run as a program: it prints `ready host:port` and exits when its standard input closes. It stores direct relations
only; of a schema it reads names and subject types.
"""

import base64
import re
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn

import grpc
from authzed.api.v1 import (
    CheckPermissionRequest,
    CheckPermissionResponse,
    ObjectReference,
    Precondition,
    ReadRelationshipsRequest,
    ReadRelationshipsResponse,
    ReadSchemaRequest,
    ReadSchemaResponse,
    Relationship,
    RelationshipFilter,
    RelationshipUpdate,
    SubjectReference,
    WriteRelationshipsRequest,
    WriteRelationshipsResponse,
    WriteSchemaRequest,
    WriteSchemaResponse,
    ZedToken,
)
from authzed.api.v1.permission_service_pb2_grpc import (
    PermissionsServiceServicer,
    add_PermissionsServiceServicer_to_server,
)
from authzed.api.v1.schema_service_pb2_grpc import (
    SchemaServiceServicer,
    add_SchemaServiceServicer_to_server,
)

PRESHARED_KEY = "a preshared key"
STORE = "servicer"
OBJECT_ID = re.compile(r"[a-zA-Z0-9/_|\-=+]{1,1024}")
Row = tuple[str, str, str, str, str]


class Refusing(grpc.ServerInterceptor):  # type: ignore[misc]  grpc has no types
    """Refuses calls without the preshared key."""

    def intercept_service(self, continuation: Any, details: Any) -> Any:
        if ("authorization", f"Bearer {PRESHARED_KEY}") in tuple(tuple(each) for each in details.invocation_metadata):
            return continuation(details)

        def refuse(request: Any, context: grpc.ServicerContext) -> NoReturn:
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "invalid preshared key")

        return grpc.unary_unary_rpc_method_handler(refuse)


class Graph:
    """Relation rows under one lock, with a new revision for each write."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.rows: set[Row] = set()
        self.revision = 0
        self.schema = ""
        self.relations: dict[str, dict[str, str]] = {}

    def token(self) -> ZedToken:
        return ZedToken(token=base64.b64encode(f"{STORE}:{self.revision}".encode()).decode())

    def require_known(self, row: Row, context: grpc.ServicerContext) -> None:
        subject_type = self.relations.get(row[0], {}).get(row[2])
        if subject_type is None:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"relation {row[0]}#{row[2]} not found")
        if subject_type != row[3]:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"subjects of type {row[3]} are not allowed")
        if not OBJECT_ID.fullmatch(row[1]) or not OBJECT_ID.fullmatch(row[4]):
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "malformed object id")

    def require_reachable(self, request: Any, context: grpc.ServicerContext) -> None:
        """Check that a token was issued by this store.

        There is one copy of the rows, so a valid token is always reached.
        """
        if request.consistency.HasField("at_least_as_fresh"):
            try:
                store, _, revision = base64.b64decode(request.consistency.at_least_as_fresh.token).partition(b":")
            except ValueError:
                store, revision = b"", b"0"
            if store != STORE.encode() or int(revision) > self.revision:
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, "invalid zed token")
        elif not request.consistency.fully_consistent:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the adapter always says how fresh")


class Schemas(SchemaServiceServicer):  # type: ignore[misc]
    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def ReadSchema(self, request: ReadSchemaRequest, context: grpc.ServicerContext) -> ReadSchemaResponse:  # noqa: N802
        if not self.graph.schema:
            context.abort(grpc.StatusCode.NOT_FOUND, "No schema has been defined")
        return ReadSchemaResponse(schema_text=self.graph.schema)

    def WriteSchema(self, request: WriteSchemaRequest, context: grpc.ServicerContext) -> WriteSchemaResponse:  # noqa: N802
        self.graph.schema = request.schema
        for name, body in re.findall(r"definition\s+(\w+)\s*\{([^}]*)\}", request.schema):
            self.graph.relations[name] = dict(re.findall(r"relation\s+(\w+)\s*:\s*(\w+)", body))
        return WriteSchemaResponse()


class Permissions(PermissionsServiceServicer):  # type: ignore[misc]
    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def WriteRelationships(  # noqa: N802
        self, request: WriteRelationshipsRequest, context: grpc.ServicerContext
    ) -> WriteRelationshipsResponse:
        rows = [row_of(update.relationship) for update in request.updates]
        if len(set(rows)) != len(rows):
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "found more than one update with relationship")
        with self.graph.lock:
            for row in rows:
                self.graph.require_known(row, context)
            for precondition in request.optional_preconditions:
                is_met = any(matches(precondition.filter, row) for row in self.graph.rows)
                if is_met != (precondition.operation == Precondition.OPERATION_MUST_MATCH):
                    context.abort(grpc.StatusCode.FAILED_PRECONDITION, "unable to satisfy write precondition")
            for update, row in zip(request.updates, rows, strict=True):
                if update.operation == RelationshipUpdate.OPERATION_DELETE:
                    self.graph.rows.discard(row)
                elif update.operation == RelationshipUpdate.OPERATION_TOUCH:
                    self.graph.rows.add(row)
                else:
                    context.abort(grpc.StatusCode.UNIMPLEMENTED, "the adapter touches and deletes")
            self.graph.revision += 1
            return WriteRelationshipsResponse(written_at=self.graph.token())

    def CheckPermission(  # noqa: N802
        self, request: CheckPermissionRequest, context: grpc.ServicerContext
    ) -> CheckPermissionResponse:
        self.graph.require_reachable(request, context)
        subject = request.subject.object
        row = (*row_head(request.resource), request.permission, subject.object_type, subject.object_id)
        if request.permission not in self.graph.relations.get(row[0], {}):
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"relation {row[0]}#{row[2]} not found")
        answer = CheckPermissionResponse.PERMISSIONSHIP_NO_PERMISSION
        if row in self.graph.rows:
            answer = CheckPermissionResponse.PERMISSIONSHIP_HAS_PERMISSION
        return CheckPermissionResponse(checked_at=self.graph.token(), permissionship=answer)

    def ReadRelationships(  # noqa: N802
        self, request: ReadRelationshipsRequest, context: grpc.ServicerContext
    ) -> Iterator[ReadRelationshipsResponse]:
        self.graph.require_reachable(request, context)
        with self.graph.lock:
            found = [row for row in self.graph.rows if matches(request.relationship_filter, row)]
        for row in found:
            yield ReadRelationshipsResponse(read_at=self.graph.token(), relationship=relationship_of(row))


def row_head(resource: ObjectReference) -> tuple[str, str]:
    return resource.object_type, resource.object_id


def row_of(relationship: Relationship) -> Row:
    subject = relationship.subject.object
    return (*row_head(relationship.resource), relationship.relation, subject.object_type, subject.object_id)


def relationship_of(row: Row) -> Relationship:
    return Relationship(
        resource=ObjectReference(object_type=row[0], object_id=row[1]),
        relation=row[2],
        subject=SubjectReference(object=ObjectReference(object_type=row[3], object_id=row[4])),
    )


def matches(wanted: RelationshipFilter, row: Row) -> bool:
    subject = wanted.optional_subject_filter
    pairs = (
        (wanted.resource_type, row[0]),
        (wanted.optional_resource_id, row[1]),
        (wanted.optional_relation, row[2]),
        (subject.subject_type, row[3]),
        (subject.optional_subject_id, row[4]),
    )
    return all(asked in {"", found} for asked, found in pairs)


def main() -> None:
    graph = Graph()
    server = grpc.server(ThreadPoolExecutor(8), interceptors=[Refusing()])
    add_SchemaServiceServicer_to_server(Schemas(graph), server)
    add_PermissionsServiceServicer_to_server(Permissions(graph), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(f"ready 127.0.0.1:{port}", flush=True)  # noqa: T201  the parent reads it
    sys.stdin.read()
    server.stop(None)


if __name__ == "__main__":
    main()
