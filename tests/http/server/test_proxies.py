"""Which proxies are trusted, and which address is that of the caller."""

import pytest

from sightline.config.addresses import read_networks
from sightline.http.server import TrustedProxies

PEER = ("10.0.0.9", 4711)


@pytest.mark.parametrize(
    ("network", "address", "is_trusted"),
    [
        ("172.16.0.0/12", "172.17.0.3", True),
        ("172.16.0.0/12", "172.31.255.255", True),
        ("172.16.0.0/12", "172.32.0.1", False),
        ("172.16.0.0/12", "::ffff:172.17.0.3", True),
        ("10.0.0.2", "10.0.0.2", True),
        ("10.0.0.2", "10.0.0.20", False),
        ("fd00::/8", "fd12::1", True),
        ("fd00::/8", "10.0.0.2", False),
        ("10.0.0.2", "not an address", False),
    ],
)
def test_a_proxy_is_trusted_by_its_network(network: str, address: str, is_trusted: bool) -> None:
    assert TrustedProxies(read_networks([network])).trusts(address) is is_trusted


@pytest.mark.parametrize("text", ["172.16.0.1/12", "caddy", "10.0.0.0/33", "10.0.0", "*", "10.0.0.1:80"])
def test_what_is_no_network_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(ValueError, match="is neither an address nor a network") as refused:
        TrustedProxies(read_networks(["10.0.0.2", text]))
    assert repr(text) in str(refused.value)


@pytest.mark.parametrize(
    ("values", "caller"),
    [
        (["203.0.113.7"], "203.0.113.7"),
        (["6.6.6.6, 203.0.113.7"], "203.0.113.7"),
        (["6.6.6.6", "203.0.113.7"], "203.0.113.7"),
        (["6.6.6.6, 203.0.113.7, 10.0.0.5"], "203.0.113.7"),
        (["6.6.6.6, 203.0.113.7", "10.1.2.3, 10.0.0.5"], "203.0.113.7"),
        (["10.0.0.7, 10.0.0.5"], "10.0.0.7"),
        (["6.6.6.6, nonsense, 10.0.0.5"], "10.0.0.5"),
        (["6.6.6.6, nonsense"], PEER[0]),
        ([""], PEER[0]),
        ([], PEER[0]),
        (["203.0.113.7:9876"], "203.0.113.7"),
        (["[2001:db8::1]:9876"], "2001:db8::1"),
        (["::ffff:203.0.113.7"], "203.0.113.7"),
        (["6.6.6.6," * 500 + "203.0.113.7"], "203.0.113.7"),
        (["6.6.6.6, " + "10.0.0.1," * 500 + "10.0.0.5"], "10.0.0.1"),
    ],
)
def test_the_caller_is_the_right_most_address_that_is_no_proxy(values: list[str], caller: str) -> None:
    headers = [(b"host", b"t"), *((b"x-forwarded-for", each.encode()) for each in values)]
    assert TrustedProxies(read_networks(["10.0.0.0/8"])).caller(headers, PEER)[0] == caller
