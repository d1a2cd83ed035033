"""Check of the media addresses at start: a wrong setting would otherwise fail after a 201 without any message."""

import asyncio
import ipaddress
from typing import Final, final

from sightline.domain.value import Value
from sightline.video.options import NetOptions
from sightline.video.rtc.peer import choose_addresses, resolved, with_resolved_names

PROBE: Final = b"sightline self-test"
PROBE_S: Final = 0.6
UNRESOLVED: Final = "the host name has no address: the bound address is sent to clients instead"


@final
class AddressCheck(Value, kw_only=True):
    """Result for one address."""

    bind: str
    advertised: str
    ok: bool
    problem: str | None = None


@final
class _Echo(asyncio.DatagramProtocol):
    def __init__(self) -> None:
        self.heard = asyncio.Event()

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        del addr
        if data == PROBE:
            self.heard.set()


async def _check(bind: str, advertised: str, ports: range) -> AddressCheck:
    loop = asyncio.get_running_loop()
    problem = "the port range is empty"
    for port in ports:
        try:
            transport, echo = await loop.create_datagram_endpoint(_Echo, local_addr=(bind, port))
            break
        except OSError as error:
            problem = f"cannot bind: {error.strerror or error}"
    else:
        return AddressCheck(bind=bind, advertised=advertised, ok=False, problem=problem)
    try:
        to = transport.get_extra_info("sockname")[1]
        sender, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, remote_addr=(advertised, to))
        sender.sendto(PROBE)
        try:
            async with asyncio.timeout(PROBE_S):
                await echo.heard.wait()
        except TimeoutError:
            why = "a datagram to the advertised address did not arrive"
            hint = "normal behind NAT without hairpinning; else open the UDP port range"
            return AddressCheck(bind=bind, advertised=advertised, ok=False, problem=f"{why} ({hint})")
        finally:
            sender.close()
    except OSError as error:
        return AddressCheck(bind=bind, advertised=advertised, ok=False, problem=f"no route: {error}")
    finally:
        transport.close()
    return AddressCheck(bind=bind, advertised=advertised, ok=True)


async def check_addresses(net: NetOptions) -> list[AddressCheck]:
    """Send a datagram to each address that is advertised, and report those that do not arrive."""
    ports = range(net.udp_port_min, net.udp_port_max + 1) if net.udp_port_min else range(1)
    pairs = choose_addresses(await with_resolved_names(net), "")
    names = [(bind, name) for bind, name in choose_addresses(net, "") if await resolved(name, bind) is None]
    checks = list(await asyncio.gather(*(_check(bind, advertised, ports) for bind, advertised in pairs)))
    checks += [AddressCheck(bind=bind, advertised=name, ok=False, problem=UNRESOLVED) for bind, name in names]
    if all(ipaddress.ip_address(advertised).is_loopback for _, advertised in pairs):
        problem = "only loopback works: browsers and other machines cannot connect"
        checks.append(AddressCheck(bind="*", advertised="*", ok=False, problem=problem))
    return checks


def run_address_check(net: NetOptions) -> list[AddressCheck]:
    """Run `check_addresses` outside of any event loop."""
    return asyncio.run(check_addresses(net))
