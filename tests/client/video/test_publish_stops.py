"""When a publisher ends: when it is told to, and when the server refuses it for good."""

import signal
import socket
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from sightline_client.video.assets import clip_path


def test_sigterm_ends_a_publisher_whose_server_never_answers() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/whip/x"
        command = [sys.executable, "-m", "sightline_client.video.publish", str(clip_path()), "--whip", url]
        publisher = subprocess.Popen(command)
        try:
            connection, _ = silent.accept()
            with connection:
                publisher.send_signal(signal.SIGTERM)
                assert publisher.wait(timeout=30) == 0
        finally:
            publisher.kill()
            publisher.wait()


def test_a_publication_that_mediamtx_ended_while_it_began_is_repeated_and_another_refusal_is_not() -> None:
    answers = [(400, b'{"error":"terminated"}'), (400, b'{"error":"terminated"}'), (400, b'{"error":"no such path"}')]
    offers: list[bytes] = []

    class Refusing(BaseHTTPRequestHandler):
        def do_OPTIONS(self) -> None:
            self.send_response(204)
            self.end_headers()

        def do_POST(self) -> None:
            offers.append(self.rfile.read(int(self.headers["content-length"])))
            status, body = answers[len(offers) - 1]
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/whip/x"
        command = [sys.executable, "-m", "sightline_client.video.publish", str(clip_path()), "--whip", url]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        server.shutdown()
    assert (done.returncode, len(offers)) == (1, 3), done.stderr
    assert done.stderr.count("terminated") == 2
    assert done.stderr.endswith('publish: the server answered 400: {"error":"no such path"}\n')
