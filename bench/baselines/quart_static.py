"""Unmodified Quart-Trio on Hypercorn that serves one file: `python -m bench.baselines.quart_static PORT FILE`."""

import sys
from pathlib import Path

import trio
from hypercorn.config import Config
from hypercorn.trio import serve
from quart import Response, send_file
from quart_trio import QuartTrio

app = QuartTrio(__name__)
FILE = Path(sys.argv[2])


@app.get("/frame.jpg")
async def frame() -> Response:
    """Serve the file with an ETag, or answer 304."""
    return await send_file(FILE, mimetype="image/jpeg", conditional=True)


if __name__ == "__main__":
    config = Config()
    config.bind = [f"127.0.0.1:{sys.argv[1]}"]
    config.accesslog = "-"
    trio.run(serve, app, config)
