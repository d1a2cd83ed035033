"""Attacks by a relations graph that lies: an external SpiceDB, or whoever sits between."""

from functools import partial

import grpc
import trio
from authzed.api.v1 import WriteRelationshipsResponse, ZedToken

from tests.attack.catalogue import Kind, attack
from tests.attack.rows.access.on_identity import cookie_of
from tests.attack.rows.service.on_servers import a_service
from tests.attack.target import Target
from tests.contract.spicedb_servicer import PRESHARED_KEY
from tests.e2e.server import PLACE, until
from tests.identity.spicedb.liar import Answer, Liar, a_liar

ANSWER_S_MAX = 30.0
BREAKER_PAUSE_S = 2.5


def reset(_request: object, context: grpc.ServicerContext) -> None:
    context.abort(grpc.StatusCode.UNAVAILABLE, "Connection reset by peer")


def lies_of_reads(liar: Liar) -> dict[str, Answer]:
    """Answers to the question which role a wallet has; none is the role of the wallet that asks."""
    return {
        "another wallet's role": liar.for_another_wallet,
        "the owner of another workspace": liar.for_another_resource,
        "an endless stream": liar.without_end,
        "messages of 900 KB": liar.huge,
        "a message of 4 MB": liar.larger_than_a_message,
        "nothing": liar.hang,
        "a reset": reset,
    }


@attack(
    "SpiceDB",
    "A SpiceDB that lies: other edges, other types, endless and huge answers, no answer",
    Kind.APART,
    before="BROKEN: another wallet's role was taken for the caller's",
)
async def lying_spicedb(_target: Target) -> str:
    tried, slowest = 0, 0.0
    with a_liar() as liar:
        env = {
            "SIGHTLINE_SPICEDB_ENDPOINT": liar.endpoint,
            "SIGHTLINE_SPICEDB_KEY": PRESHARED_KEY,
            "SIGHTLINE_SPICEDB_TLS": "false",
        }
        async with a_service(**env) as target:
            victim, stranger = await target.tenant("CONSUMER"), await target.tenant("SUPPLIER")
            cookie = await cookie_of(target, stranger.wallet)
            operator = await target.operator()
            session = (await target.live_session(victim, operator))["session"]
            shown = f"/sessions/{session['id']}"
            before = target.memory_bytes()

            async def refused(name: str, method: str, path: str, credential: str, body: object = None) -> None:
                """The call must end in time with 503, and the same call works after the lie."""
                nonlocal tried, slowest
                tried += 1
                started = trio.current_time()
                with trio.fail_after(ANSWER_S_MAX):
                    answer = await target.call(method, path, credential, body)
                slowest = max(slowest, trio.current_time() - started)
                assert answer.status_code == 503, f"{name}: {method} {path.split('/')[1]} {answer.status_code}"
                liar.tell_the_truth()
                await trio.sleep(BREAKER_PAUSE_S)  # the adapter asks again only after a pause

            select = {"workspaceId": victim.workspace_id}
            for name, lie in lies_of_reads(liar).items():
                liar.read = lie
                await refused(name, "POST", "/auth/workspace/select", cookie, select)
            for raw in (b"", b"\xff" * 50, b"<html>"):
                liar.raw = raw
                await refused("bytes that are no message", "POST", "/auth/workspace/select", cookie, select)
            liar.write = lambda request, context: WriteRelationshipsResponse(written_at=ZedToken(token="x" * 2_000))
            place = {"lat": PLACE[0], "lng": PLACE[1], "maxDurationSeconds": 60}
            answer = await target.call("POST", "/sessions", victim.key, place)
            assert answer.status_code in (503, 504), f"a token of 2,000 characters: {answer.status_code}"
            liar.tell_the_truth()
            await trio.sleep(BREAKER_PAUSE_S)

            async def status(*call: object) -> int:
                return (await target.call(*call)).status_code

            await until(partial(status, "GET", shown, operator.key), lambda seen: seen == 200, "read after the lies")
            selected = partial(status, "POST", "/auth/workspace/select", cookie, select)
            assert await until(selected, lambda seen: seen != 503, "selected after the lies") in (403, 404)
            grown = target.memory_bytes() - before
    assert grown < 150_000_000, f"memory grew by {grown / 1e6:.0f} MB"
    return f"503 for {tried} of {tried}, the slowest after {slowest:.1f} s; memory {grown / 1e6:+.0f} MB"
