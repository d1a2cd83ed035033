"""deploy/haproxy.cfg in front of two servers, run by HAProxy."""

import shutil
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from socket import SOCK_STREAM

import httpx2
import pytest
import trio

from sightline.bootstrap.listeners.own_tls import issue
from sightline.system.clock import SystemClock
from sightline.system.ids import SystemIds
from sightline_client import NotReachedError, UnavailableError
from tests.client.api import Api
from tests.cluster.bus.certificates import CLIENT_AND_SERVER, issue_certificate
from tests.cluster.servers import Cluster, a_cluster
from tests.e2e.server import PLACE, Server, Tenant, a_tenant, go_online, until
from tests.video.support.real_engines import free_ports

# httpx leaves the body of a stream that is closed early to the garbage collector.
pytestmark = [
    pytest.mark.interop,
    pytest.mark.filterwarnings("ignore:Async generator 'httpcore2:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
CONFIG = Path(__file__).parents[2] / "deploy" / "haproxy.cfg"
READS = 12


@contextmanager
def haproxy(folder: Path, cluster: Cluster) -> Iterator[tuple[str, ssl.SSLContext]]:
    """HAProxy with deploy/haproxy.cfg in front of two servers: its URL, and how to trust its certificate."""
    folder.mkdir()
    issue(folder, SystemIds(), SystemClock().now_ms(), None, "host")
    certificate, key = issue_certificate(folder / "tls", "haproxy", CLIENT_AND_SERVER)
    both = folder / "both.pem"
    both.write_bytes(certificate.read_bytes() + key.read_bytes())
    (port,) = free_ports(SOCK_STREAM)
    one, two = (server.url.removeprefix("http://") for server in cluster.servers)
    text = CONFIG.read_text()
    for written, here in {
        ":443": f"127.0.0.1:{port}",
        "/etc/haproxy/video.example.com.pem": str(both),
        "maxconn 20000": "maxconn 200",
        "10.0.0.1:8080": one,
        "10.0.0.2:8080": two,
    }.items():
        assert text.count(written) == 1
        text = text.replace(written, here)
    (folder / "haproxy.cfg").write_text(text)
    binary = shutil.which("haproxy") or "/usr/sbin/haproxy"
    subprocess.run([binary, "-c", "-f", str(folder / "haproxy.cfg")], check=True, stdout=subprocess.DEVNULL)
    process = subprocess.Popen([binary, "-db", "-f", str(folder / "haproxy.cfg")])
    try:
        yield f"https://127.0.0.1:{port}", ssl.create_default_context(cafile=str(folder / "tls" / "ca.pem"))
    finally:
        process.kill()
        process.wait()


def reads_of(server: Server) -> int:
    """How many calls that read a session a server has logged."""
    lines = [line for line in server.log().splitlines() if '"event":"http_call"' in line]
    return sum('"method":"GET","route":"/api/v1/sessions/{id}"' in line for line in lines)


async def test_a_session_is_served_through_haproxy_by_one_server_and_by_the_other_when_that_one_dies(
    data_directory: Path,
) -> None:
    with a_cluster(2, SIGHTLINE_TRUSTED_PROXIES="127.0.0.1") as cluster:
        await cluster.start()
        with haproxy(data_directory / "haproxy", cluster) as (url, trust):
            consumer, operator = await sign_up(cluster.servers[0].url)
            async with (
                httpx2.AsyncClient(verify=trust, timeout=30) as http,
                Api(url, key=consumer.key, http=http) as watcher,
                Api(url, key=operator.key, http=http) as device,
            ):
                await until(partial(is_answered, watcher), bool, "HAProxy finds a server")
                made = await watcher.post("/sessions", lat=PLACE[0], lng=PLACE[1], maxDurationSeconds=600)
                path = f"/sessions/{made['id']}"
                assert (await watcher.post(f"{path}/dispatch"))["operatorWorkspaceId"] == operator.workspace_id
                async with watcher.sessions.events(made["id"]) as events:
                    await device.post(f"{path}/start")
                    with trio.fail_after(60):
                        while (event := await anext(events)).name != "session" or event.data["state"] != "LIVE":
                            pass
                before = [reads_of(server) for server in cluster.servers]
                for _ in range(READS):
                    assert (await watcher.get(path))["state"] == "LIVE"
                read = [reads_of(server) - earlier for server, earlier in zip(cluster.servers, before, strict=True)]
                assert sorted(read) == [0, READS]
                await cluster.servers[read.index(READS)].kill()
                await until(partial(is_live, watcher, path), bool, "the other server answers")
                assert (await watcher.post(f"{path}/end"))["state"] == "ENDED"


async def sign_up(url: str) -> tuple[Tenant, Tenant]:
    consumer, operator = await a_tenant(url, "CONSUMER", "consumer"), await a_tenant(url, "SUPPLIER", "operator")
    await go_online(url, operator)
    return consumer, operator


async def is_answered(api: Api) -> bool:
    try:
        await api.get("/me")
    except (UnavailableError, NotReachedError):
        return False
    return True


async def is_live(api: Api, path: str) -> bool:
    try:
        return bool((await api.get(path))["state"] == "LIVE")
    except (UnavailableError, NotReachedError):
        return False
