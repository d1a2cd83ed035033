"""Heartbeats of operators."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field

from sightline.http.schemas.base import Input, InstantMs, Latitude, Longitude, Output, SafeWhole, Uuid
from sightline.http.schemas.workspaces import Workspace


class HeartbeatBody(Input):
    """Where the device is. `sequence` must be greater than the last accepted one; gaps are fine."""

    AREA = "location"
    LABELS: ClassVar[Mapping[str, str]] = {"lat": "location:lat", "lng": "location:lng"}

    lat: Latitude
    lng: Longitude
    sequence: SafeWhole
    accuracy_meters: Annotated[float, Field(ge=0, le=100_000, allow_inf_nan=False)] | None = Field(
        default=None, description="Default 50"
    )
    heading_degrees: Annotated[float, Field(ge=0, lt=360, allow_inf_nan=False)] | None = None
    speed_mps: Annotated[float, Field(ge=0, le=1_000, allow_inf_nan=False)] | None = None
    altitude_meters: Annotated[float, Field(ge=-500, le=20_000, allow_inf_nan=False)] | None = None
    battery_percent: Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)] | None = None
    captured_at: InstantMs | None = Field(default=None, description="The device's own time of the fix")
    session_id: Uuid | None = Field(default=None, description="If given, the LIVE session it is meant for")
    source: Literal["GPS", "FUSED", "NETWORK", "MANUAL"] | None = None
    is_mock: bool | None = None


class HeartbeatsBody(Input):
    """Several heartbeats, oldest first, as a device sends them that was out of reach."""

    AREA = "location"

    items: Annotated[list[HeartbeatBody], Field(min_length=1, max_length=200)]


class HeartbeatVerdict(Output):
    """What became of one heartbeat of a batch. All but the first two only where `ok` is false."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=False)

    sequence: int
    ok: bool
    code: str | None = None
    detail: str | None = None
    message: str | None = None
    hint: str | None = Field(default=None, description="What is wrong with this one, and what to do")
    last_sequence: int | None = Field(default=None, description="The last accepted sequence, where this one is lower")


class HeartbeatVerdicts(Output):
    """What became of a batch; those that are ok are durable."""

    items: list[HeartbeatVerdict]
    workspace: Workspace
