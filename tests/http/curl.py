"""Stands in for curl on a machine that has none: the options that docs/api.md uses, and no others."""

import argparse
import sys
import time
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(add_help=False)
    for flag in ("-s", "-f", "-N", "--retry-all-errors"):
        parser.add_argument(flag, action="store_true")
    for option in ("-X", "-d", "-b", "-c", "-o", "-D", "-w"):
        parser.add_argument(option)
    parser.add_argument("-H", action="append", default=[])
    parser.add_argument("--retry", type=int, default=0)
    parser.add_argument("--retry-delay", type=float, default=1)
    parser.add_argument("--max-time", type=float, default=30)
    parser.add_argument("url")
    arguments = sys.argv[1:]
    joined = {"-sf": ["-s", "-f"], "-sN": ["-s", "-N"]}
    return parser.parse_args([part for each in arguments for part in joined.get(each, [each])])


def send(options: argparse.Namespace) -> tuple[int, str, bytes, list[str]]:
    parts = urlsplit(options.url)
    headers = dict(header.split(": ", 1) for header in options.H)
    if options.b:
        headers["cookie"] = Path(options.b).read_text()
    method = options.X or ("POST" if options.d is not None else "GET")
    connection = HTTPConnection(str(parts.hostname), parts.port or 80, timeout=options.max_time)
    connection.request(method, f"{parts.path}?{parts.query}", options.d, headers)
    answer = connection.getresponse()
    body = b""
    try:
        while piece := answer.read1(65_536) if options.N else answer.read():
            body += piece
    except TimeoutError:
        pass
    head = "".join(f"{name}: {value}\r\n" for name, value in answer.getheaders())
    return answer.status, head, body, answer.headers.get_all("set-cookie") or []


def main() -> int:
    options = read_options()
    for attempt in range(options.retry + 1):
        status, head, body, cookies = send(options)
        if status < 400 or attempt == options.retry:
            break
        time.sleep(options.retry_delay)
    if options.c and cookies:
        Path(options.c).write_text("; ".join(cookie.partition(";")[0] for cookie in cookies))
    if options.D:
        Path(options.D).write_text(head)
    if options.f and status >= 400:
        return 22
    if options.o:
        Path(options.o).write_bytes(body)
    else:
        sys.stdout.buffer.write(body)
    if options.w:
        sys.stdout.write(options.w.replace("%{http_code}", str(status)).replace("\\n", "\n"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
