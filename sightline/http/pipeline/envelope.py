"""The envelopes of JSON responses."""

from collections.abc import Mapping

import orjson

from sightline.http.schemas.base import iso

SUCCESS_MESSAGE = "Request successful"


def success(data: Mapping[str, object], at_ms: int) -> bytes:
    """The success envelope around `data`."""
    return orjson.dumps(
        {"statusCode": 200, "message": SUCCESS_MESSAGE, "data": data, "timestamp": iso(at_ms)},
        option=orjson.OPT_PASSTHROUGH_DATETIME,
    )


def failure(fields: Mapping[str, object], at_ms: int) -> bytes:
    """The error envelope."""
    return orjson.dumps({**fields, "timestamp": iso(at_ms)})
