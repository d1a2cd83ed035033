"""When a publisher ends: when it is told to, and when the server refuses it for good."""

import os
import signal
import socket
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread

import pytest

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


def published(answers: list[tuple[int, bytes]]) -> tuple["subprocess.CompletedProcess[str]", int]:
    """Publish the clip to a server that gives these answers; returns what the publisher did, and its offers."""
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
    return done, len(offers)


def test_a_publication_that_mediamtx_ended_while_it_began_is_repeated_and_another_refusal_is_not() -> None:
    ended = (400, b'{"error":"terminated"}')
    done, offers = published([ended, ended, (400, b'{"error":"no such path"}')])
    assert (done.returncode, offers) == (1, 3), done.stderr
    assert done.stderr.count("terminated") == 2
    assert done.stderr.endswith('publish: the server answered 400: {"error":"no such path"}\n')


def test_a_url_whose_session_does_not_run_is_told_as_such() -> None:
    done, offers = published([(404, b'{"title":"No such live input"}')])
    assert (done.returncode, offers) == (1, 1)
    refusal = "publish: the server answered 404: No such live input. The URL to publish to lives as long as its session"
    assert done.stderr.startswith(refusal)


@pytest.mark.parametrize(("content", "reason"), [("hello", "it is no video. Name"), (None, "No such file")])
def test_a_file_that_cannot_be_published_is_told_in_words(content: str | None, reason: str, tmp_path: Path) -> None:
    source = tmp_path / "hello.mp4"
    if content is not None:
        source.write_text(content)
    command = [sys.executable, "-m", "sightline_client.video.publish", str(source), "--whip", "http://127.0.0.1:1/x"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, "Errno" in done.stderr) == (1, False)
    assert done.stderr.startswith(f"publish: cannot read {source}: {reason}")


def test_a_publisher_dies_with_a_parent_that_is_killed() -> None:
    """By SIGKILL nobody tells the publisher to stop, and a camera must not film on without its device."""
    asked, is_gone, is_over = Event(), Event(), Event()

    class Endless(BaseHTTPRequestHandler):
        """Answers as long as somebody reads, so that the publisher never gives up by itself."""

        def do_OPTIONS(self) -> None:
            self.send_response(200)
            self.end_headers()
            asked.set()
            try:
                while not is_over.wait(0.1):
                    self.wfile.write(b"x")
            except ConnectionError:
                is_gone.set()

        def log_message(self, *_: object) -> None:
            pass

    device = "import anyio, sys\nfrom sightline_client.device import run\nanyio.run(run._publish, 'x', *sys.argv[1:])\n"
    with ThreadingHTTPServer(("127.0.0.1", 0), Endless) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/whip/x"
        with subprocess.Popen([sys.executable, "-c", device, str(clip_path()), url]) as parent:
            has_begun = asked.wait(60)
            parent.kill()
        has_ended = is_gone.wait(30)
        is_over.set()  # one that films on is not left behind
        server.shutdown()
    assert (has_begun, has_ended) == (True, True)


def test_a_publisher_that_cannot_end_its_session_dies_nevertheless(tmp_path: Path) -> None:
    """Its parent, which would kill it, is gone: as if it hung in a call of a library."""
    (tmp_path / "sitecustomize.py").write_text(
        "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])\n"
    )
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        silent.settimeout(60)
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/whip/x"
        command = [sys.executable, "-m", "sightline_client.video.publish", str(clip_path()), "--whip", url]
        env = os.environ | {"PYTHONPATH": str(tmp_path)}
        publisher = subprocess.Popen([*command, "--until-stdin-ends"], stdin=subprocess.PIPE, env=env)
        assert publisher.stdin is not None
        try:
            silent.accept()[0].close()
            publisher.stdin.close()
            assert publisher.wait(timeout=30) == 1
        finally:
            publisher.kill()
            publisher.wait()


@pytest.mark.parametrize(
    ("source", "reason", "tries"),
    [
        ("/dev/null", "Inappropriate ioctl for device", 1),
        ("rtsp://admin:secret@127.0.0.1:1/x", "Connection refused", 4),
    ],
)
def test_a_source_that_was_never_opened_ends_the_command(source: str, reason: str, tries: int) -> None:
    """A camera may be starting, so a URL is tried some times; what is no camera is not."""
    command = [sys.executable, "-m", "sightline_client", "publish", source, "--whip", "http://127.0.0.1:1/x"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    *before, last = done.stderr.splitlines()
    assert (done.returncode, len(before)) == (1, tries - 1), done.stderr
    shown = source.replace("admin:secret@", "")
    assert last.startswith(f"publish: cannot open {shown}: {reason}. It is not a video that can be read")
    assert "rtsp://..." in last
    assert all(line.endswith("trying again") for line in before)
