"""The SpiceDB adapter with a SpiceDB that lies: nothing is granted, and nothing waits without a bound."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from authzed.api.v1 import WriteRelationshipsResponse, ZedToken

from sightline.domain.errors import AuthzUnavailableError, OutcomeUnknownError
from sightline.identity.spicedb import SpiceDbOptions, SpiceDbRelations, open_spicedb
from sightline.ports.relations import WORKSPACE, TupleUpdate, operator_edge, wallet_ref
from tests.contract.spicedb_servicer import PRESHARED_KEY
from tests.identity.spicedb.liar import Liar, a_liar, permissionship

EDGE = operator_edge("33333333-3333-4333-8333-333333333333", "22222222-2222-4222-8222-222222222222")
WALLET = wallet_ref("0x" + "1" * 40)
BOUND_S = 30.0
"""Shorter than `STREAM_S` of the liar, so that the adapter has ended the call and not the server."""


@asynccontextmanager
async def an_adapter(liar: Liar, **options: Any) -> AsyncIterator[SpiceDbRelations]:
    settings = {"deadline_ms": 1_000, "preshared_key": PRESHARED_KEY, "is_tls": False} | options
    async with open_spicedb(SpiceDbOptions(endpoint=liar.endpoint, **settings), token_key=b"k" * 32) as relations:
        yield relations


@pytest.mark.parametrize("value", [0, 3, 4, 77, -1])
async def test_a_check_that_is_neither_yes_nor_no_is_unavailable(value: int) -> None:
    with a_liar() as liar:
        async with an_adapter(liar) as relations:
            liar.check = permissionship(value)
            with pytest.raises(AuthzUnavailableError, match="permissionship"):
                await relations.check(EDGE.resource, EDGE.relation, EDGE.subject)


@pytest.mark.parametrize(
    "lie", ["for_another_resource", "for_another_wallet", "without_end", "huge", "larger_than_a_message", "hang"]
)
async def test_edges_that_were_not_asked_for_or_do_not_end_are_unavailable(lie: str) -> None:
    with a_liar() as liar:
        async with an_adapter(liar) as relations:
            liar.read = getattr(liar, lie)
            workspace = "44444444-4444-4444-8444-444444444444"
            with trio.fail_after(BOUND_S), pytest.raises(AuthzUnavailableError):
                await relations.read(resource_type=WORKSPACE, resource_id=workspace, subject=WALLET)


@pytest.mark.parametrize("raw", [b"", b"\xff" * 50, b"\x08" + b"\xff" * 20, b"<html>"])
async def test_bytes_that_are_no_message_grant_nothing(raw: bytes) -> None:
    with a_liar() as liar:
        async with an_adapter(liar) as relations:
            liar.raw = raw
            with pytest.raises(AuthzUnavailableError):
                await relations.check(EDGE.resource, EDGE.relation, EDGE.subject)
            with pytest.raises(AuthzUnavailableError):
                await relations.read(resource_type=WORKSPACE, subject=WALLET)
            with pytest.raises(OutcomeUnknownError):
                await relations.write([TupleUpdate(EDGE, present=True)])


@pytest.mark.parametrize("token", ["", "x" * 2_000, "x" * 3_900_000])
async def test_a_write_whose_answer_has_no_token_has_an_unknown_outcome(token: str) -> None:
    with a_liar() as liar:
        async with an_adapter(liar) as relations:
            liar.write = lambda request, context: WriteRelationshipsResponse(written_at=ZedToken(token=token))
            with pytest.raises(OutcomeUnknownError):
                await relations.write([TupleUpdate(EDGE, present=True)])


async def test_a_spicedb_without_tls_is_not_spoken_to_where_tls_is_set() -> None:
    with a_liar() as liar, trio.fail_after(BOUND_S), pytest.raises(AuthzUnavailableError):
        async with an_adapter(liar, is_tls=True):
            raise AssertionError("connected in clear")


async def test_a_schema_of_open_braces_is_read_in_a_bounded_time() -> None:
    with a_liar() as liar:
        liar.graph.schema = "definition a{" * 70_000
        with trio.fail_after(BOUND_S), pytest.raises(AuthzUnavailableError, match="lacks"):
            async with an_adapter(liar):
                raise AssertionError("the schema was accepted")
