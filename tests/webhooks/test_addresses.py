"""Webhooks go to public addresses only, whatever a name resolves to, also if it changes between check and connect."""

import datetime
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpcore
import pytest
import trio
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from sightline.system.clock import SystemClock
from sightline.webhooks.addresses import check_url, is_public
from sightline.webhooks.http_client import SendOutcome, WebhookClient, WebhookClientOptions
from tests.webhooks.receiver import open_receiver

REFUSED = [
    "127.0.0.1", "127.8.9.10", "0.0.0.0", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1",
    "169.254.169.254", "169.254.0.1", "100.64.0.1", "100.127.255.255", "192.0.0.8", "192.0.2.1", "192.88.99.1",
    "198.18.0.1", "203.0.113.7", "224.0.0.1", "240.0.0.1", "255.255.255.255", "::1", "::", "::ffff:127.0.0.1",
    "::ffff:8.8.8.8", "::10.0.0.1", "64:ff9b::a00:1", "64:ff9b::808:808", "64:ff9b:1::1", "2002:a00:1::1",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2", "fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%eth0", "fec0::1",
    "ff02::1", "2001:db8::1", "100::1", "5f00::1", "3fff::1", "4000::1", "not an address", "",
]  # fmt: skip
ALLOWED = ["8.8.8.8", "93.184.216.34", "100.63.255.255", "100.128.0.0", "172.32.0.1", "2606:4700::1111", "2a00:1450::1"]


class RecordingNetwork(httpcore.AsyncNetworkBackend):
    """Records where connections would be opened, and opens none."""

    def __init__(self) -> None:
        self.opened: list[str] = []

    async def connect_tcp(self, host: str, port: int, *_: Any, **__: Any) -> httpcore.AsyncNetworkStream:
        await trio.lowlevel.checkpoint()
        self.opened.append(host)
        raise httpcore.ConnectError("recorded")


class Names:
    """A resolver whose answers a test gives, one after the other; the last one stays."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers = list(answers)

    async def __call__(self, host: str, port: int) -> list[str]:
        await trio.lowlevel.checkpoint()
        return list(self.answers.pop(0) if len(self.answers) > 1 else self.answers[0])


def a_client(names: Names, network: RecordingNetwork) -> WebhookClient:
    return WebhookClient(SystemClock(), WebhookClientOptions(resolve=names, network=network))


async def send(client: WebhookClient, url: str = "https://hooks.example.com/") -> SendOutcome:
    return await client.post(url, {"webhook-id": "1"}, "{}")


@pytest.mark.parametrize("address", REFUSED)
async def test_no_connection_is_opened_to_an_address_that_is_not_public(address: str) -> None:
    network = RecordingNetwork()
    assert not is_public(address)
    assert await send(a_client(Names([address]), network)) == SendOutcome(error="address_refused")
    assert await send(a_client(Names(["8.8.8.8", address]), network)) == SendOutcome(error="address_refused")
    assert network.opened == []


@pytest.mark.parametrize("address", ALLOWED)
async def test_the_checked_address_is_the_one_that_is_connected_to(address: str) -> None:
    network = RecordingNetwork()
    assert await send(a_client(Names([address]), network)) == SendOutcome(error="connect_failed")
    assert network.opened == [address]


async def test_a_name_that_turns_to_this_machine_after_the_check_reaches_nothing() -> None:
    network, names = RecordingNetwork(), Names(["93.184.216.34"], ["127.0.0.1"])
    async with open_receiver() as receiver:
        client = a_client(names, network)
        url = receiver.url(host="hooks.example.com", scheme="https")
        assert (await send(client, url)).error == "connect_failed"
        assert network.opened == ["93.184.216.34"], "the name is resolved once for each attempt"
        assert (await send(client, url)).error == "address_refused"
        assert (network.opened, receiver.connections) == (["93.184.216.34"], 0)


@pytest.mark.parametrize("url", ["https://2130706433/", "https://0x7f.1/", "https://localhost/", "https://127.1/"])
async def test_other_ways_to_write_this_machine_are_refused_with_the_real_resolver(url: str) -> None:
    network = RecordingNetwork()
    client = WebhookClient(SystemClock(), WebhookClientOptions(network=network))
    assert (await send(client, url)).error in {"address_refused", "name_not_resolved"}
    assert network.opened == []


@pytest.mark.parametrize(
    ("url", "allows_loopback", "is_allowed"),
    [
        ("https://example.com", False, True),
        ("https://example.com:8443/path?query=1", False, True),
        ("https://8.8.8.8/", False, True),
        ("https://[2606:4700::1111]/", False, True),
        ("http://example.com/", False, False),
        ("https://[64:ff9b::1]/", False, False),
        ("https://127.0.0.1/", False, False),
        ("http://127.0.0.1:9000/", True, True),
        ("http://localhost:9000/", True, True),
        ("http://example.com/", True, False),
        ("http://8.8.8.8/", True, False),
        ("http://[::1]:9000/", True, True),
        ("https://10.0.0.1/", True, False),
        ("ftp://127.0.0.1/", True, False),
    ],
)
def test_which_urls_may_be_endpoints(url: str, allows_loopback: bool, is_allowed: bool) -> None:
    assert (check_url(url, allows_loopback=allows_loopback) is None) is is_allowed


async def test_tls_and_host_use_the_name_while_the_connection_uses_the_address(tmp_path: Path) -> None:
    server_tls, client_tls = certificate_for("hooks.example.com", tmp_path)
    asked: list[str | None] = []
    server_tls.sni_callback = lambda _socket, name, _context: asked.append(name)
    async with open_receiver(tls=server_tls) as receiver:
        options = WebhookClientOptions(allows_loopback=True, resolve=Names(["127.0.0.1"]), ssl_context=client_tls)
        client = WebhookClient(SystemClock(), options)
        url = receiver.url(host="hooks.example.com", scheme="https")
        assert await send(client, url) == SendOutcome(status=204)
        assert receiver.received[0].headers["host"] == f"hooks.example.com:{receiver.port}"
        assert asked == ["hooks.example.com"]
        other = receiver.url(host="other.example.com", scheme="https")
        assert await send(client, other) == SendOutcome(error="tls_failed")
        assert len(receiver.received) == 1
        await client.close()


def certificate_for(host: str, folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server's context with a certificate for a host, and a client's that trusts it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    start = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(start).not_valid_after(start + datetime.timedelta(days=36500))
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
    certificate, private = folder / "cert.pem", folder / "key.pem"
    certificate.write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    encoding = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    private.write_bytes(key.private_bytes(*encoding))
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(certificate, private)
    return server, ssl.create_default_context(cafile=str(certificate))
