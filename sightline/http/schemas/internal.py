"""What arrives on the internal listener."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from sightline.http.schemas.base import TEXT_PATTERN, Input, InstantMs


class VideoEventBody(Input):
    """An event of the video provider."""

    AREA = "webhook"

    event_id: Annotated[str, StringConstraints(min_length=1, max_length=255, pattern=TEXT_PATTERN)]
    video_backend_ref: Annotated[str, StringConstraints(min_length=1, max_length=255, pattern=TEXT_PATTERN)]
    type: Literal["live_input.connected", "live_input.disconnected", "live_input.errored"]
    occurred_at: InstantMs
    reason: str | None = Field(default=None)
