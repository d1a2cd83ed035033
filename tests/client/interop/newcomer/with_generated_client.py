import os
import sys
import time
from pathlib import Path

from sightline_api import AuthenticatedClient
from sightline_api.api.pricing import get_quote
from sightline_api.api.sessions import create_session, dispatch_session, end_session, get_session
from sightline_api.api.video import get_frame
from sightline_api.models import CreateSessionBody, Error

client = AuthenticatedClient(base_url=os.environ["SIGHTLINE_URL"], token=os.environ["SIGHTLINE_API_KEY"])


def data_of(answer):
    if isinstance(answer, Error):
        raise SystemExit(f"{answer.code}: {answer.message}")
    return answer.data


lat, lng = float(os.environ["LAT"]), float(os.environ["LNG"])
quote = data_of(get_quote.sync(client=client, lat=lat, lng=lng, duration_seconds=60))
body = CreateSessionBody(lat=lat, lng=lng, max_duration_seconds=60, quote_id=quote.quote_id)
session = data_of(create_session.sync(client=client, body=body))
try:
    data_of(dispatch_session.sync(session.id, client=client))
    until = time.monotonic() + 60
    while data_of(get_session.sync(session.id, client=client)).state != "LIVE" and time.monotonic() < until:
        time.sleep(0.2)
    while isinstance(frame := get_frame.sync(session.id, client=client, width=320), Error):
        if frame.code != "FRAME_NOT_AVAILABLE" or time.monotonic() > until:
            raise SystemExit(f"{frame.code}: {frame.message}")
        time.sleep(0.2)
    Path("frame.jpg").write_bytes(frame.payload.read())
finally:
    ended = data_of(end_session.sync(session.id, client=client))
sys.stdout.write(f"{ended.state} {ended.charged_micro_usdc}\n")
unknown = get_session.sync("3fe8a2b0-1c1f-4a6e-9d61-0c9a8d7e6f50", client=client)
sys.stdout.write(f"{unknown.status_code} {unknown.code}\n")
