"""The authorization graph in SpiceDB, by its gRPC API (package `authzed`, extra `spicedb`).

gRPC does not support trio, so each call blocks a thread of a small pool. Deadlines are short, because a request waits
for the call. A read is tried twice. A write is tried twice only if it is idempotent (no preconditions). A write whose
answer was lost has an unknown outcome; it is not reported as a failure.

The graph is written *before* the row that it belongs to (`Staged.undo` removes the edges again): an edge without its
row grants nothing, but a row without its edge would lock its owner out.
"""

import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from importlib.resources import files
from typing import Any, Final, TypeVar, final

import grpc
import structlog
import trio
from authzed.api.v1 import (
    CheckPermissionRequest,
    CheckPermissionResponse,
    Consistency,
    ObjectReference,
    Precondition,
    ReadRelationshipsRequest,
    ReadSchemaRequest,
    Relationship,
    RelationshipFilter,
    RelationshipUpdate,
    SubjectFilter,
    SubjectReference,
    WriteRelationshipsRequest,
    WriteSchemaRequest,
    ZedToken,
)
from authzed.api.v1.permission_service_pb2_grpc import PermissionsServiceStub
from authzed.api.v1.schema_service_pb2_grpc import SchemaServiceStub

from sightline.domain.consistency import ConsistencyTokens
from sightline.domain.errors import AuthzUnavailableError, InvariantError, OutcomeUnknownError
from sightline.domain.value import Value, hiding
from sightline.identity.breaker import Breaker
from sightline.ports.relations import (
    OPERATOR_WORKSPACE,
    ObjectRef,
    PreconditionFailedError,
    RelationTuple,
    Staged,
    TupleUpdate,
)

log = structlog.get_logger()
T = TypeVar("T")
_Status: Final = grpc.StatusCode
_FLEETING: Final = frozenset({_Status.UNAVAILABLE, _Status.DEADLINE_EXCEEDED, _Status.ABORTED})
# INTERNAL is also gRPC's own word for an answer that it cannot read.
_MAYBE_DONE: Final = frozenset(
    {
        _Status.UNAVAILABLE,
        _Status.DEADLINE_EXCEEDED,
        _Status.CANCELLED,
        _Status.UNKNOWN,
        _Status.INTERNAL,
        _Status.DATA_LOSS,
    }
)
_BAD_TOKEN: Final = frozenset({_Status.INVALID_ARGUMENT, _Status.OUT_OF_RANGE, _Status.FAILED_PRECONDITION})
_TOO_LONG: Final = "received message larger"
MESSAGE_BYTES_MAX: Final = 1 << 20
"""Of one message of SpiceDB; the longest is the schema."""
EDGES_MAX: Final = 10_000
EDGES_BYTES_MAX: Final = 4 << 20
"""Of one answer. A workspace has few members; a wallet has few workspaces."""
TOKEN_CHARACTERS_MAX: Final = 1_024
DETAILS_CHARACTERS_MAX: Final = 300
# Messages of gRPC that say that no connection was made, so that nothing was sent.
_NOT_SENT: Final = ("failed to connect", "connection refused", "name resolution", "dns resolution")


@final
class SpiceDbOptions(Value, kw_only=True):
    """Address, credentials and time limits of SpiceDB. `endpoint` is host:port."""

    endpoint: str
    preshared_key: str
    is_tls: bool = True
    ca_certificates: bytes | None = None
    """Certificate authority as PEM; None uses the system's."""
    deadline_ms: int = 500
    """Deadline of one try; a read has two tries."""
    threads_max: int = 16
    breaker_failures: int = 5
    breaker_pause_ms: int = 2_000

    __repr__ = hiding("preshared_key")


@asynccontextmanager
async def open_spicedb(options: SpiceDbOptions, *, token_key: bytes) -> AsyncIterator["SpiceDbRelations"]:
    """Connect, make sure that the schema exists (an empty SpiceDB gets it written), and disconnect at the end.

    Raises:
        AuthzUnavailableError: SpiceDB does not answer, or its schema lacks our definitions.
    """
    channel = _channel(options)
    try:
        relations = SpiceDbRelations(channel, options, token_key=token_key)
        await relations.ensure_schema()
        yield relations
    finally:
        channel.close()


@final
class SpiceDbRelations:
    """Implements the Relations port over one gRPC channel."""

    def __init__(self, channel: grpc.Channel, options: SpiceDbOptions, *, token_key: bytes) -> None:
        self._permissions = PermissionsServiceStub(channel)
        self._schema = SchemaServiceStub(channel)
        self._options = options
        # Each ZedToken contains the identity of its SpiceDB; this tag only separates it from tokens of the embedded
        # graph.
        self._tokens = ConsistencyTokens(backend="z1", store_id="spicedb", key=token_key)
        self._threads = trio.CapacityLimiter(options.threads_max)
        self._breaker = Breaker(failures_max=options.breaker_failures, pause_ms=options.breaker_pause_ms)

    async def ensure_schema(self) -> None:
        """Write the schema into an empty SpiceDB; otherwise check that the schema contains our definitions."""
        try:
            missing = _relations_of(schema_text()) - _relations_of(await self._schema_found())
        except _RpcRefusedError as refused:
            raise AuthzUnavailableError(f"the schema was refused: {refused}") from refused
        if missing:
            raise AuthzUnavailableError(f"the schema lacks {', '.join(sorted(missing))}; write spicedb.zed into it")

    async def write(self, updates: Sequence[TupleUpdate], *, requires: Sequence[RelationTuple] = ()) -> str:
        """Apply all updates in one call."""
        request = WriteRelationshipsRequest(
            updates=[_update(update) for update in updates],
            optional_preconditions=[_must_match(edge) for edge in requires],
        )
        try:
            response = await self._write(request, self._permissions.WriteRelationships, is_repeatable=not requires)
        except _RpcRefusedError as refused:
            if requires and refused.code is _Status.FAILED_PRECONDITION:
                raise PreconditionFailedError from refused
            raise AuthzUnavailableError(f"the write was refused: {refused}") from refused
        if not 0 < len(response.written_at.token) <= TOKEN_CHARACTERS_MAX:
            raise OutcomeUnknownError("SpiceDB answered a write without a token")
        return self._tokens.encode(response.written_at.token)

    @property
    def is_external(self) -> bool:
        """SpiceDB is: edges are written before the row they belong to."""
        return True

    async def stage(self, updates: Sequence[TupleUpdate]) -> Staged:
        """Write the updates at once, before the caller's row; the result can remove them again.

        A session has one operator: if a crash left an operator's edge whose row was never committed, that edge
        is removed.
        """
        undo = tuple(update.inverse() for update in updates)
        try:
            return Staged(token=await self.write([*updates, *await self._left_behind(updates)]), undo=undo)
        except OutcomeUnknownError as error:
            await self._take_back(undo)
            raise AuthzUnavailableError(str(error)) from error

    async def _left_behind(self, updates: Sequence[TupleUpdate]) -> list[TupleUpdate]:
        """Find the other operators' edges of the sessions in these updates."""
        put = {update.edge for update in updates if update.present and update.edge.relation == OPERATOR_WORKSPACE}
        found: set[RelationTuple] = set()
        for session in {edge.resource for edge in put}:
            found |= set(await self.read(resource_type=session.type, resource_id=session.id))
        return [TupleUpdate(edge, present=False) for edge in sorted(found - put) if edge.relation == OPERATOR_WORKSPACE]

    async def check(
        self, resource: ObjectRef, relation: str, subject: ObjectRef, *, at_least: str | None = None
    ) -> bool:
        """Return whether the edge exists, at least as fresh as the token.

        Raises:
            AuthzUnavailableError: SpiceDB did not answer with yes or no.
        """

        def request(consistency: Consistency) -> CheckPermissionRequest:
            return CheckPermissionRequest(
                consistency=consistency,
                resource=_object(resource),
                permission=relation,
                subject=SubjectReference(object=_object(subject)),
            )

        response = await self._fresh(partial(self._unary, self._permissions.CheckPermission), request, at_least)
        match response.permissionship:
            case CheckPermissionResponse.PERMISSIONSHIP_HAS_PERMISSION:
                return True
            case CheckPermissionResponse.PERMISSIONSHIP_NO_PERMISSION:
                return False
            case other:  # our schema has no conditions
                raise AuthzUnavailableError(f"SpiceDB answered a check with permissionship {other}")

    async def read(
        self,
        *,
        resource_type: str,
        resource_id: str | None = None,
        subject: ObjectRef | None = None,
        at_least: str | None = None,
    ) -> tuple[RelationTuple, ...]:
        """List edges in ascending order."""
        wanted = RelationshipFilter(
            resource_type=resource_type,
            optional_resource_id=resource_id or "",
            optional_subject_filter=subject and _subject_filter(subject),
        )

        def request(consistency: Consistency) -> ReadRelationshipsRequest:
            return ReadRelationshipsRequest(consistency=consistency, relationship_filter=wanted)

        rows = await self._fresh(self._stream, request, at_least)
        edges = tuple(sorted(_edge(row.relationship) for row in rows))
        for edge in edges:
            asked = (resource_type, resource_id or edge.resource.id, subject or edge.subject)
            if (edge.resource.type, edge.resource.id, edge.subject) != asked:
                # A caller takes the role of each edge without asking whose it is.
                raise AuthzUnavailableError("SpiceDB answered with edges that were not asked for")
        return edges

    def token_for(self, revision: int) -> str:
        """Raise InvariantError: this graph is never written by a caller's transaction."""
        raise InvariantError("SpiceDB writes give their own tokens")

    async def _schema_found(self) -> str:
        """Return the existing schema; write ours first if there is none."""
        try:
            found = await self._read(partial(self._unary, self._schema.ReadSchema, ReadSchemaRequest()))
        except _RpcRefusedError as refused:
            if refused.code is not _Status.NOT_FOUND:
                raise
            wanted = schema_text()
            await self._write(WriteSchemaRequest(schema=wanted), self._schema.WriteSchema, is_repeatable=True)
            return wanted
        return str(found.schema_text)

    async def _fresh(self, call: Callable[[Any], T], request: Callable[[Consistency], Any], at_least: str | None) -> T:
        """Read at least as fresh as the token; fully consistent without a token or with a token of another graph."""
        zed_token = self._tokens.decode(at_least) if at_least is not None else None
        try:
            if zed_token is not None:
                fresh = Consistency(at_least_as_fresh=ZedToken(token=zed_token))
                try:
                    return await self._read(partial(call, request(fresh)))
                except _RpcRefusedError as refused:
                    if refused.code not in _BAD_TOKEN:
                        raise
                    # The signature of the token is ours, but this SpiceDB does not know it: it was set up again.
            return await self._read(partial(call, request(Consistency(fully_consistent=True))))
        except _RpcRefusedError as refused:
            raise AuthzUnavailableError(f"the read was refused: {refused}") from refused

    async def _read(self, call: Callable[[], T]) -> T:
        with self._breaker.guarding():
            for is_last in (False, True):
                try:
                    return await self._in_thread(call, is_abandoned=True)
                except _RpcRefusedError as refused:
                    if refused.code not in _FLEETING:
                        raise
                    if is_last:
                        raise AuthzUnavailableError(str(refused)) from refused
            raise AssertionError

    async def _write(self, request: Any, method: Callable[..., Any], *, is_repeatable: bool) -> Any:
        call = partial(self._unary, method, request)
        with self._breaker.guarding():
            try:
                return await self._in_thread(call)
            except _RpcRefusedError as refused:
                if not (is_repeatable and refused.code in _FLEETING):
                    raise _verdict(refused) from refused
            try:
                return await self._in_thread(call)
            except _RpcRefusedError as refused:
                raise _verdict(refused) from refused

    async def _take_back(self, undo: Sequence[TupleUpdate]) -> None:
        try:
            await self.write(undo)
        except (AuthzUnavailableError, OutcomeUnknownError) as error:
            log.warning("edges_not_taken_back", edges=len(undo), reason=str(error))

    async def _in_thread(self, call: Callable[[], T], *, is_abandoned: bool = False) -> T:
        # An abandoned thread ends at the deadline of its call.
        return await trio.to_thread.run_sync(call, limiter=self._threads, abandon_on_cancel=is_abandoned)

    # --- Functions that run in a thread. ---

    def _unary(self, method: Callable[..., T], request: Any) -> T:
        try:
            return method(request, timeout=self._options.deadline_ms / 1_000, metadata=self._metadata())
        except grpc.RpcError as error:
            raise _RpcRefusedError(error) from error

    def _stream(self, request: ReadRelationshipsRequest) -> list[Any]:
        def read(*args: Any, **kwargs: Any) -> list[Any]:
            answers = self._permissions.ReadRelationships(*args, **kwargs)
            rows, size = [], 0
            for row in answers:
                rows.append(row)
                size += row.ByteSize()
                if len(rows) > EDGES_MAX or size > EDGES_BYTES_MAX:
                    answers.cancel()
                    raise AuthzUnavailableError("SpiceDB answered with too many edges")
            return rows

        return self._unary(read, request)

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        return (("authorization", f"Bearer {self._options.preshared_key}"),)


class _RpcRefusedError(Exception):
    """A call ended with a status other than OK."""

    def __init__(self, error: grpc.RpcError) -> None:
        self.code: grpc.StatusCode = error.code()
        self.details: str = (error.details() or "")[:DETAILS_CHARACTERS_MAX]
        super().__init__(f"{self.code.name}: {self.details}")


def schema_text() -> str:
    """Return the schema that both kinds of graph follow."""
    return files("sightline.identity").joinpath("spicedb.zed").read_text(encoding="utf-8")


def _verdict(refused: _RpcRefusedError) -> Exception:
    """Classify a failed write: not applied, outcome unknown, or refused for a reason that the caller handles."""
    if _TOO_LONG in refused.details.lower():
        return OutcomeUnknownError(str(refused))
    if refused.code not in _MAYBE_DONE and refused.code not in _FLEETING:
        return refused
    was_sent = not any(words in refused.details.lower() for words in _NOT_SENT)
    if refused.code in _MAYBE_DONE and was_sent:
        return OutcomeUnknownError(str(refused))
    return AuthzUnavailableError(str(refused))


def _channel(options: SpiceDbOptions) -> grpc.Channel:
    bounds = [("grpc.max_receive_message_length", MESSAGE_BYTES_MAX)]
    if not options.is_tls:
        return grpc.insecure_channel(options.endpoint, bounds)
    return grpc.secure_channel(options.endpoint, grpc.ssl_channel_credentials(options.ca_certificates), bounds)


def _relations_of(schema: str) -> set[str]:
    """Return names like `session#operator_workspace` for everything that a schema defines."""
    found = set()
    for name, body in re.findall(r"definition\s+([\w/]+)\s*\{([^{}]*)\}", schema):
        found |= {name, *(f"{name}#{relation}" for relation in re.findall(r"relation\s+(\w+)\s*:", body))}
    return found


def _object(ref: ObjectRef) -> ObjectReference:
    return ObjectReference(object_type=ref.type, object_id=ref.id)


def _update(update: TupleUpdate) -> RelationshipUpdate:
    operation = RelationshipUpdate.OPERATION_TOUCH if update.present else RelationshipUpdate.OPERATION_DELETE
    relationship = Relationship(
        resource=_object(update.edge.resource),
        relation=update.edge.relation,
        subject=SubjectReference(object=_object(update.edge.subject)),
    )
    return RelationshipUpdate(operation=operation, relationship=relationship)


def _must_match(edge: RelationTuple) -> Precondition:
    wanted = RelationshipFilter(
        resource_type=edge.resource.type,
        optional_resource_id=edge.resource.id,
        optional_relation=edge.relation,
        optional_subject_filter=_subject_filter(edge.subject),
    )
    return Precondition(operation=Precondition.OPERATION_MUST_MATCH, filter=wanted)


def _subject_filter(subject: ObjectRef) -> SubjectFilter:
    return SubjectFilter(subject_type=subject.type, optional_subject_id=subject.id)


def _edge(relationship: Relationship) -> RelationTuple:
    resource, subject = relationship.resource, relationship.subject.object
    return RelationTuple(
        ObjectRef(resource.object_type, resource.object_id),
        relationship.relation,
        ObjectRef(subject.object_type, subject.object_id),
    )
