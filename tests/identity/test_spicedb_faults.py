"""The SpiceDB adapter with a SpiceDB that is down, slow, has another schema, or loses the answer to a write."""

import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
import trio
from authzed.api.v1 import (
    CheckPermissionResponse,
    ReadSchemaResponse,
    RelationshipUpdate,
    WriteRelationshipsResponse,
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

from sightline.domain.errors import AuthzUnavailableError, InvariantError, OutcomeUnknownError
from sightline.identity.spicedb import SpiceDbOptions, SpiceDbRelations, open_spicedb, schema_text
from sightline.ports.relations import TupleUpdate, operator_edge

EDGE = operator_edge("33333333-3333-4333-8333-333333333333", "22222222-2222-4222-8222-222222222222")
YES = CheckPermissionResponse(permissionship=CheckPermissionResponse.PERMISSIONSHIP_HAS_PERMISSION)
Behaviour = Callable[[grpc.ServicerContext], None]


class Scripted(PermissionsServiceServicer, SchemaServiceServicer):
    """A SpiceDB service that runs a script, one entry per call, and succeeds after the last entry."""

    def __init__(self) -> None:
        self.schema = schema_text()
        self.script: list[Behaviour] = []
        self.calls: list[str] = []
        self.written: list[tuple[str, int]] = []
        self.release = threading.Event()

    def _act(self, name: str, context: grpc.ServicerContext) -> None:
        self.calls.append(name)
        if self.script:
            self.script.pop(0)(context)

    def ReadSchema(self, request: Any, context: grpc.ServicerContext) -> ReadSchemaResponse:  # noqa: N802
        if not self.schema:
            context.abort(grpc.StatusCode.NOT_FOUND, "No schema has been defined")
        return ReadSchemaResponse(schema_text=self.schema)

    def WriteSchema(self, request: Any, context: grpc.ServicerContext) -> WriteSchemaResponse:  # noqa: N802
        self.schema = request.schema
        return WriteSchemaResponse()

    def WriteRelationships(self, request: Any, context: grpc.ServicerContext) -> WriteRelationshipsResponse:  # noqa: N802
        self.written += [(each.relationship.relation, each.operation) for each in request.updates]
        self._act("write", context)
        return WriteRelationshipsResponse(written_at=ZedToken(token="zed"))

    def ReadRelationships(self, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:  # noqa: N802
        return iter(())

    def CheckPermission(self, request: Any, context: grpc.ServicerContext) -> CheckPermissionResponse:  # noqa: N802
        self._act("check", context)
        return YES

    def hang(self, context: grpc.ServicerContext) -> None:
        """Give no answer until the test ends."""
        self.release.wait(60)

    @staticmethod
    def fail(code: grpc.StatusCode) -> Behaviour:
        return lambda context: context.abort(code, "as scripted")


@pytest.fixture
def scripted() -> Iterator[tuple[Scripted, str]]:
    servicer, server = Scripted(), grpc.server(ThreadPoolExecutor(8))
    add_PermissionsServiceServicer_to_server(servicer, server)
    add_SchemaServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield servicer, f"127.0.0.1:{port}"
    servicer.release.set()
    server.stop(None).wait(5)


@asynccontextmanager
async def an_adapter(endpoint: str, **options: Any) -> AsyncIterator[SpiceDbRelations]:
    settings = {"deadline_ms": 1_000, "preshared_key": "key", "is_tls": False} | options
    async with open_spicedb(SpiceDbOptions(endpoint=endpoint, **settings), token_key=b"k" * 32) as relations:
        yield relations


async def check(relations: SpiceDbRelations) -> bool:
    return await relations.check(EDGE.resource, EDGE.relation, EDGE.subject)


async def test_an_empty_spicedb_is_given_our_schema(scripted: tuple[Scripted, str]) -> None:
    servicer, endpoint = scripted
    servicer.schema = ""
    async with an_adapter(endpoint):
        assert servicer.schema == schema_text()


async def test_somebody_elses_schema_is_left_alone_and_told(scripted: tuple[Scripted, str]) -> None:
    servicer, endpoint = scripted
    servicer.schema = theirs = "definition document {}"
    with pytest.raises(AuthzUnavailableError, match="session#operator_workspace"):
        async with an_adapter(endpoint):
            pass
    assert servicer.schema == theirs


async def test_a_schema_that_holds_ours_and_more_is_fine(scripted: tuple[Scripted, str]) -> None:
    servicer, endpoint = scripted
    servicer.schema = "definition document {}\n" + schema_text()
    async with an_adapter(endpoint) as relations:
        assert await check(relations)


async def test_no_spicedb_is_told_at_the_start() -> None:
    with trio.fail_after(60), pytest.raises(AuthzUnavailableError):
        async with an_adapter("127.0.0.1:9"):
            pass


@pytest.mark.parametrize("code", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED])
async def test_a_read_is_tried_twice(scripted: tuple[Scripted, str], code: grpc.StatusCode) -> None:
    servicer, endpoint = scripted
    servicer.script = [servicer.fail(code)]
    async with an_adapter(endpoint) as relations:
        assert await check(relations)
        servicer.script = [servicer.fail(code)] * 2
        with pytest.raises(AuthzUnavailableError):
            await check(relations)


@pytest.mark.parametrize(
    "code", [grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.RESOURCE_EXHAUSTED]
)
async def test_a_refused_call_is_not_repeated(scripted: tuple[Scripted, str], code: grpc.StatusCode) -> None:
    servicer, endpoint = scripted
    async with an_adapter(endpoint) as relations:
        servicer.script = [servicer.fail(code)] * 2
        with pytest.raises(AuthzUnavailableError):
            await check(relations)
        with pytest.raises(AuthzUnavailableError):
            await relations.write([TupleUpdate(EDGE)])
    assert servicer.calls == ["check", "write"]


async def test_a_spicedb_that_hangs_is_given_up_within_two_deadlines(scripted: tuple[Scripted, str]) -> None:
    servicer, endpoint = scripted
    async with an_adapter(endpoint) as relations:
        servicer.script = [servicer.hang] * 2
        with trio.fail_after(20), pytest.raises(AuthzUnavailableError):
            await check(relations)


async def test_a_repeatable_write_is_tried_twice(scripted: tuple[Scripted, str]) -> None:
    servicer, endpoint = scripted
    async with an_adapter(endpoint) as relations:
        servicer.script = [servicer.hang]
        assert await relations.write([TupleUpdate(EDGE)])
    assert servicer.calls == ["write", "write"]


async def test_a_write_with_no_answer_is_an_unknown_outcome(scripted: tuple[Scripted, str]) -> None:
    servicer, endpoint = scripted
    async with an_adapter(endpoint) as relations:
        servicer.script = [servicer.hang] * 2
        with pytest.raises(OutcomeUnknownError):
            await relations.write([TupleUpdate(EDGE)])
        servicer.calls.clear()
        servicer.script = [servicer.hang]
        with pytest.raises(OutcomeUnknownError):
            await relations.write([TupleUpdate(EDGE)], requires=[EDGE])
        assert servicer.calls == ["write"]


async def test_staging_without_an_answer_takes_the_edge_back(scripted: tuple[Scripted, str]) -> None:
    servicer, endpoint = scripted
    async with an_adapter(endpoint) as relations:
        servicer.script = [servicer.hang] * 2
        with pytest.raises(AuthzUnavailableError):
            await relations.stage([TupleUpdate(EDGE)])
    touched = ("operator_workspace", RelationshipUpdate.OPERATION_TOUCH)
    assert servicer.written == [touched, touched, ("operator_workspace", RelationshipUpdate.OPERATION_DELETE)]


async def test_a_write_to_a_spicedb_that_is_gone_surely_did_nothing() -> None:
    async with _disconnected() as relations:
        with pytest.raises(AuthzUnavailableError):
            await relations.write([TupleUpdate(EDGE)])


@asynccontextmanager
async def _disconnected() -> AsyncIterator[SpiceDbRelations]:
    """Create an adapter whose SpiceDB refuses connections."""
    options = SpiceDbOptions(endpoint="127.0.0.1:9", preshared_key="key", is_tls=False, deadline_ms=250)
    with grpc.insecure_channel(options.endpoint) as channel:
        yield SpiceDbRelations(channel, options, token_key=b"k" * 32)


async def test_after_failures_in_a_row_it_is_left_alone_and_then_asked_by_one(scripted: tuple[Scripted, str]) -> None:
    servicer, endpoint = scripted
    async with an_adapter(endpoint, breaker_failures=2, breaker_pause_ms=2_000) as relations:
        servicer.script = [servicer.fail(grpc.StatusCode.UNAVAILABLE)] * 4
        for _ in range(2):
            with pytest.raises(AuthzUnavailableError):
                await check(relations)
        asked = len(servicer.calls)
        with pytest.raises(AuthzUnavailableError):
            await check(relations)
        assert len(servicer.calls) == asked
        with trio.fail_after(60):
            while not await _answers(relations):
                await trio.lowlevel.checkpoint()
        assert len(servicer.calls) == asked + 1
        assert await check(relations)


async def _answers(relations: SpiceDbRelations) -> bool:
    try:
        return await check(relations)
    except AuthzUnavailableError:
        return False


async def test_its_writes_have_tokens_of_their_own(scripted: tuple[Scripted, str]) -> None:
    async with an_adapter(scripted[1]) as relations:
        with pytest.raises(InvariantError):
            relations.token_for(1)
