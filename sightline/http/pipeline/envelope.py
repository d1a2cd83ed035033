"""The one shape of every JSON answer, and how instants are written."""

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


def failure(*, status: int, code: str, message: str, detail: str | None, at_ms: int) -> bytes:
    """The error envelope. `detail` is left out when there is none."""
    body: dict[str, object] = {"statusCode": status, "code": code, "message": message}
    if detail is not None:
        body["detail"] = detail
    body["timestamp"] = iso(at_ms)
    return orjson.dumps(body)
