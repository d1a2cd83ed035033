"""Show a place to programs that only read a still image URL, as Home Assistant's Generic Camera does.

pip install sightline-client
sightline dev                            # in another terminal; export the variables that it prints
python examples/still_camera.py 52.520008 13.404954 --port 8899

A view begins with the first request of http://127.0.0.1:8899/still.jpg, and ends when nobody has asked for a while.
"""

import argparse
import signal
import threading
import time
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from sightline_client import MicroUsdc, Sightline, SightlineError, View, usdc


class StillCamera:
    """One view at a time, while somebody looks."""

    def __init__(self, place: tuple[float, float], *, budget: MicroUsdc, seconds: int, idle_s: float) -> None:
        self._place, self._budget, self._seconds, self._idle_s = place, budget, seconds, idle_s
        self._lock = threading.Lock()
        self._open = ExitStack()
        self._view: View | None = None
        self._asked_s = 0.0

    def still(self) -> bytes:
        """Return a JPEG of now. Begins a view if there is none, or the last one is over."""
        with self._lock:
            self._asked_s = time.monotonic()
            try:
                if self._view is None:
                    sl = self._open.enter_context(Sightline())
                    view = sl.view(*self._place, seconds=self._seconds, max_charge=self._budget)
                    self._view = self._open.enter_context(view)
                frame = self._view.frame(width=1280)
            except SightlineError:
                self._leave()
                raise
            if frame.state == "lost":
                raise SightlineError("The camera does not answer; this would be an old picture")
            return frame.jpeg

    def end(self, *, only_idle: bool = False) -> None:
        """End the view. `only_idle`: if nobody has asked for a while."""
        with self._lock:
            if not only_idle or time.monotonic() - self._asked_s > self._idle_s:
                self._leave()

    def _leave(self) -> None:
        self._view = None
        self._open.close()  # ends the session, if there is one


def main() -> None:
    """Run the example."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("lat", type=float)
    parser.add_argument("lng", type=float)
    parser.add_argument("--port", type=int, default=8899)
    parser.add_argument("--budget", default="0.20", help="USDC for one view")
    parser.add_argument("--seconds", type=int, default=120, help="longest duration of one view")
    parser.add_argument("--idle", type=float, default=15, help="seconds without a request after which a view ends")
    options = parser.parse_args()
    place, budget = (options.lat, options.lng), usdc(options.budget)
    camera = StillCamera(place, budget=budget, seconds=options.seconds, idle_s=options.idle)

    class Door(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            try:
                jpeg = camera.still() if self.path.partition("?")[0] == "/still.jpg" else None
            except SightlineError as error:
                self.send_error(503, explain=str(error))
                return
            if jpeg is None:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("content-type", "image/jpeg")
            self.send_header("content-length", str(len(jpeg)))
            self.end_headers()
            self.wfile.write(jpeg)

    server = ThreadingHTTPServer(("127.0.0.1", options.port), Door)
    server.timeout = 1
    is_over = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        # Not an exception: it could come while a view ends.
        signal.signal(number, lambda *_: is_over.set())
    print(f"http://127.0.0.1:{server.server_port}/still.jpg", flush=True)
    while not is_over.is_set():
        server.handle_request()  # returns after a second without one
        camera.end(only_idle=True)
    camera.end()


if __name__ == "__main__":
    main()
