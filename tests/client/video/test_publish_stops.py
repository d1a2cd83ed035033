"""A publisher stops when it is told to, even if the server does not answer."""

import signal
import socket
import subprocess
import sys

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
