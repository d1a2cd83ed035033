"""The self-test at start reports media addresses that cannot be reached."""

import errno
import socket

from sightline.video.options import NetOptions, Options
from tests.video.support.harness import SECRET, a_rig


def options(**net: object) -> Options:
    return Options(secret=SECRET, public_url="", workers=1, net=NetOptions(**net))  # type: ignore[arg-type]


async def test_addresses_that_work_have_no_problem():
    async with a_rig(options(bind_addresses=("127.0.0.1",), advertised_addresses=("127.0.0.1",))) as rig:
        first, alone = await rig.backend.self_test()
    assert first == {"bind": "127.0.0.1", "advertised": "127.0.0.1", "ok": True, "problem": None}
    assert "only loopback" in alone["problem"]


async def test_an_address_that_is_not_ours_cannot_be_bound():
    async with a_rig(options(bind_addresses=("203.0.113.5",))) as rig:
        found = {check["bind"]: check for check in await rig.backend.self_test()}
    assert not found["203.0.113.5"]["ok"]
    assert "cannot bind" in found["203.0.113.5"]["problem"]
    assert found["127.0.0.1"]["ok"]


async def test_an_advertised_name_without_an_address_is_told():
    async with a_rig(options(bind_addresses=("127.0.0.1",), advertised_addresses=("missing.invalid",))) as rig:
        found = {check["advertised"]: check for check in await rig.backend.self_test()}
    assert found["127.0.0.1"]["ok"], "what is sent instead"
    assert "the host name has no address" in found["missing.invalid"]["problem"]


async def test_a_port_range_that_is_used_up_is_told():
    with socket.socket(type=socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        net = {"bind_addresses": ("127.0.0.1",), "udp_port_min": port, "udp_port_max": port}
        async with a_rig(options(**net)) as rig:
            (check, _) = await rig.backend.self_test()
    assert not check["ok"]
    assert "cannot bind" in check["problem"], errno.EADDRINUSE
