"""`python -m tests.attack.second_tenant URL [CA_FILE]`: call a URL 20 times a second and print each time in ms.

The environment variable EVERY_S sets another interval in seconds. An answer 404 or 503 is repeated, and the time is
that until the answer 200: what counts is when a frame is there.

It runs in a process of its own, so that what the clients of an attack compute does not count as the server's time. The
environment variable API_KEY holds the credential, if the URL needs one.
"""

import os
import ssl
import sys

import httpx
import trio

INTERVAL_S = float(os.environ.get("EVERY_S", "0.05"))


async def call(url: str, ca_file: str | None) -> None:
    key = os.environ.get("API_KEY")
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    context = ssl.create_default_context(cafile=ca_file)
    context.check_hostname = False
    async with httpx.AsyncClient(timeout=30, headers=headers, verify=context) as http:
        while True:
            started = trio.current_time()
            answer = await http.get(url)
            while answer.status_code in (404, 503):
                await trio.sleep(INTERVAL_S)
                answer = await http.get(url)
            assert answer.status_code == 200, answer.text
            sys.stdout.write(f"{(trio.current_time() - started) * 1_000:.3f}\n")
            sys.stdout.flush()
            await trio.sleep_until(started + INTERVAL_S)


if __name__ == "__main__":
    trio.run(call, sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None)
