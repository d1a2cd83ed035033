"""Clients: a registration needs no row and cannot be forged; a described client is what its own URL says."""

import json

import pytest

from sightline.identity.key_codec import KeyHasher
from sightline.identity.oauth.clients import OAuthClients
from sightline.identity.oauth.requests import AuthorizationRequest, OAuthError
from tests.identity.world import HandClock

URL = "https://client.test/oauth.json"
CALLBACK = "http://127.0.0.1:3000/callback"


class Web:
    """Documents by URL, counted."""

    def __init__(self) -> None:
        self.documents: dict[str, bytes] = {}
        self.reads = 0

    async def get(self, url: str) -> bytes | None:
        self.reads += 1
        return self.documents.get(url)

    def describe(self, **changes: object) -> None:
        self.documents[URL] = json.dumps({"client_id": URL, "redirect_uris": [CALLBACK]} | changes).encode()


@pytest.fixture
def web() -> Web:
    return Web()


@pytest.fixture
def clients(web: Web) -> OAuthClients:
    return OAuthClients(KeyHasher(b"p" * 32), HandClock(), web.get)


def asking(client_id: str, redirect_uri: str = CALLBACK) -> AuthorizationRequest:
    return AuthorizationRequest(
        client_id=client_id, redirect_uri=redirect_uri, state=None, challenge="", scopes=(), resource=""
    )


async def test_every_server_knows_a_registered_client_and_no_forged_one(clients: OAuthClients, web: Web) -> None:
    made = clients.register({"client_name": "An agent", "redirect_uris": [CALLBACK]})
    other_server = OAuthClients(KeyHasher(b"p" * 32), HandClock(), web.get)
    found = await other_server.client_of(asking(made.client_id))
    assert (found.name, found.redirect_uris, found.host) == ("An agent", (CALLBACK,), None)
    foreign = OAuthClients(KeyHasher(b"q" * 32), HandClock(), web.get)
    text, _, code = made.client_id.partition(".")
    for client_id, service in (
        (made.client_id, foreign),
        (text, clients),
        (f"{text[:-4]}AAAA.{code}", clients),
        ("é", clients),
        ("", clients),
    ):
        with pytest.raises(OAuthError, match="invalid_client"):
            await service.client_of(asking(client_id))


async def test_a_registered_client_is_answered_at_its_own_redirect_uris_only(clients: OAuthClients) -> None:
    made = clients.register({"redirect_uris": [CALLBACK]})
    with pytest.raises(OAuthError, match="invalid_redirect_uri"):
        await clients.client_of(asking(made.client_id, "https://evil.test/cb"))


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"redirect_uris": []},
        {"redirect_uris": CALLBACK},
        {"redirect_uris": [1]},
        {"redirect_uris": [CALLBACK] * 11},
        {"redirect_uris": ["javascript:alert(1)"]},
        {"redirect_uris": [CALLBACK], "token_endpoint_auth_method": "private_key_jwt"},
        {"redirect_uris": [CALLBACK], "grant_types": ["client_credentials"]},
        {"redirect_uris": [f"https://a.test/{n}/{'x' * 300}" for n in range(10)]},
    ],
)
def test_a_registration_that_could_not_be_used_is_refused(clients: OAuthClients, metadata: dict[str, object]) -> None:
    with pytest.raises(OAuthError, match="invalid_"):
        clients.register(metadata)


def test_the_name_of_a_client_cannot_turn_or_hide_the_text_around_it(clients: OAuthClients) -> None:
    made = clients.register({"redirect_uris": [CALLBACK], "client_name": "Good\u202elive\n\x00" + "x" * 100})
    assert made.name == ("Goodlive" + "x" * 100)[:60]
    assert clients.register({"redirect_uris": [CALLBACK], "client_name": "\u200b"}).name == "unnamed client"


async def test_a_described_client_is_read_from_its_url_once_for_ten_minutes(clients: OAuthClients, web: Web) -> None:
    web.describe(client_name="Described")
    for _ in range(2):
        found = await clients.client_of(asking(URL))
        assert (found.name, found.host) == ("Described", "client.test")
    assert web.reads == 1


@pytest.mark.parametrize(
    ("url", "changes"),
    [
        ("https://client.test", {}),
        ("https://client.test/other.json", {}),
        (URL, {"client_id": "https://other.test/oauth.json"}),
        (URL, {"redirect_uris": ["javascript:alert(1)"]}),
        (f"{URL}#x", {}),
        ("https://user@client.test/oauth.json", {}),
        ("https://client.test/a/../oauth.json", {}),
    ],
)
async def test_a_description_that_is_not_the_clients_own_is_refused(
    clients: OAuthClients, web: Web, url: str, changes: dict[str, object]
) -> None:
    web.describe(**changes)
    with pytest.raises(OAuthError, match="invalid_"):
        await clients.client_of(asking(url))
