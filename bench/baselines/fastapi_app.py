"""The baseline of the benchmarks: FastAPI on uvicorn (uvloop, httptools) with asyncpg and little code.

One INSERT per heartbeat, one SELECT per read, `FOR UPDATE SKIP LOCKED` per dispatch. It answers the same requests as
Sightline. A quote counts the operators that cover the point, with an index on the place. A dispatch takes the operator
that is idle for the longest time, in the order of an index on idle time; here this is faster than the index on the
place. API keys are cached in the process, asyncpg prepares the statements, orjson writes the answers, and the pool
opens all its connections at the start. bench.run starts it:

    BENCH_DSN=postgresql://... uvicorn bench.baselines.fastapi_app:app --loop uvloop --http httptools
"""

import hashlib
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any
from uuid import UUID, uuid4

import asyncpg
import orjson
from fastapi import Depends, FastAPI, Header, HTTPException, Query, Response
from pydantic import BaseModel, Field

POOL = 12
_keys: dict[str, UUID] = {}


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Keep the connection pool open while the application runs."""
    app.state.pool = await asyncpg.create_pool(os.environ["BENCH_DSN"], min_size=POOL, max_size=POOL)
    yield
    await app.state.pool.close()


app = FastAPI(lifespan=lifespan)


def envelope(data: Any) -> Response:
    """Build a response envelope equal to Sightline's."""
    body = {
        "statusCode": 200,
        "message": "Request successful",
        "data": data,
        "timestamp": datetime.now(UTC),
    }
    return Response(orjson.dumps(body, default=str), media_type="application/json")


async def principal(authorization: Annotated[str, Header()]) -> UUID:
    """Return the workspace of an API key; queried once per process."""
    found = _keys.get(authorization)
    if found is None:
        digest = hashlib.sha256(authorization.removeprefix("Bearer ").encode()).digest()
        found = await app.state.pool.fetchval("SELECT workspace_id FROM api_key WHERE digest = $1", digest)
        if found is None:
            raise HTTPException(401)
        _keys[authorization] = found
    return found


Workspace = Annotated[UUID, Depends(principal)]


class Heartbeat(BaseModel):
    """The body of a heartbeat."""

    lat: float = Field(ge=-90, le=90)
    lng: float = Field(ge=-180, le=180)
    sequence: int = Field(ge=0, le=9007199254740991)
    accuracyMeters: float = Field(default=50, ge=0, le=100000)  # noqa: N815 (the name on the wire)


@app.post("/api/v1/workspaces/{workspace_id}/location")
async def location(workspace_id: UUID, beat: Heartbeat, mine: Workspace) -> Response:
    """Insert one heartbeat."""
    if workspace_id != mine:
        raise HTTPException(403)
    try:
        received = await app.state.pool.fetchval(
            "INSERT INTO heartbeat (workspace_id, sequence, lat, lng, accuracy_meters)"
            " VALUES ($1, $2, $3, $4, $5) RETURNING received_at",
            workspace_id,
            beat.sequence,
            beat.lat,
            beat.lng,
            beat.accuracyMeters,
        )
    except asyncpg.UniqueViolationError:
        raise HTTPException(409) from None
    return envelope({"id": workspace_id, "lastSeenAt": received})


@app.get("/api/v1/sessions/{session_id}")
async def read_session(session_id: UUID, mine: Workspace) -> Response:
    """Read one session."""
    row = await app.state.pool.fetchrow("SELECT * FROM session WHERE id = $1", session_id)
    if row is None:
        raise HTTPException(404)
    if mine not in (row["consumer_workspace_id"], row["operator_workspace_id"]):
        raise HTTPException(403)
    return envelope(_session(row))


def _session(row: Any) -> dict[str, Any]:
    return {
        "id": row["id"],
        "consumerWorkspaceId": row["consumer_workspace_id"],
        "operatorWorkspaceId": row["operator_workspace_id"],
        "state": row["state"],
        "requestedLat": row["lat"],
        "requestedLng": row["lng"],
        "maxDurationSeconds": row["max_duration_seconds"],
        "ratePerSecondMicroUsdc": str(row["rate_micro"]),
        "holdMicroUsdc": str(row["rate_micro"] * row["max_duration_seconds"]),
        "createdAt": row["created_at"],
        "assignedAt": row["assigned_at"],
    }


@app.get("/api/v1/pricing/quote")
async def quote(
    lat: Annotated[float, Query(ge=-90, le=90)],
    lng: Annotated[float, Query(ge=-180, le=180)],
    durationSeconds: Annotated[int, Query(ge=1, le=14400)],  # noqa: N803 (the name on the wire)
    mine: Workspace,
) -> Response:
    """Price a point by supply and demand and store the quote, in one statement."""
    row = await app.state.pool.fetchrow(
        """
        WITH facts AS (
            SELECT (SELECT count(*) FROM workspace
                    WHERE state = 'ONLINE' AND lat BETWEEN $3 - 0.05 AND $3 + 0.05
                      AND lng BETWEEN $4 - 0.08 AND $4 + 0.08 AND distance_m(lat, lng, $3, $4) <= radius_m) AS supply,
                   (SELECT count(*) FROM session
                    WHERE state IN ('REQUESTED', 'ASSIGNED') AND created_at > now() - interval '5 minutes'
                      AND lat BETWEEN $3 - 0.05 AND $3 + 0.05 AND lng BETWEEN $4 - 0.08 AND $4 + 0.08) AS demand
        )
        INSERT INTO quote (id, workspace_id, lat, lng, duration_seconds, rate_micro, expires_at)
        SELECT $1, $2, $3, $4, $5, greatest(1, 1000 * (10000 + 625 * (4 - least(supply, 8))) / 10000), $6 FROM facts
        RETURNING rate_micro, (SELECT supply FROM facts)
        """,
        identity := uuid4(),
        mine,
        lat,
        lng,
        durationSeconds,
        expires := datetime.now(UTC) + timedelta(seconds=120),
    )
    rate = row["rate_micro"]
    return envelope(
        {
            "quoteId": identity,
            "availableOperators": row["supply"],
            "ratePerSecondMicroUsdc": str(rate),
            "estimatedTotalMicroUsdc": str(rate * durationSeconds),
            "expiresAt": expires,
        }
    )


@app.post("/api/v1/sessions/{session_id}/dispatch")
async def dispatch(session_id: UUID, mine: Workspace) -> Response:
    """Assign the ONLINE operator that is idle for the longest time, in one transaction."""
    async with app.state.pool.acquire() as connection, connection.transaction():
        session = await connection.fetchrow("SELECT * FROM session WHERE id = $1 FOR UPDATE", session_id)
        if session is None:
            raise HTTPException(404)
        if session["consumer_workspace_id"] != mine:
            raise HTTPException(403)
        if session["state"] != "REQUESTED":
            raise HTTPException(409)
        operator = await connection.fetchval(
            """
            UPDATE workspace SET state = 'BUSY' WHERE id = (
                SELECT id FROM workspace
                WHERE state = 'ONLINE' AND distance_m(lat, lng, $1, $2) <= radius_m
                ORDER BY idle_since, id LIMIT 1 FOR UPDATE SKIP LOCKED
            ) RETURNING id
            """,
            session["lat"],
            session["lng"],
        )
        if operator is None:
            raise HTTPException(503)
        row = await connection.fetchrow(
            "UPDATE session SET state = 'ASSIGNED', operator_workspace_id = $2, assigned_at = now()"
            " WHERE id = $1 RETURNING *",
            session_id,
            operator,
        )
    return envelope(_session(row))
