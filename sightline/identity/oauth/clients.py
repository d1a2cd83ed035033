"""Clients of OAuth: who asks a member for access.

A client registers itself (RFC 7591), or its id is the URL of a document that describes it (Client ID Metadata
Document). Neither proves who made it: a member is shown where the answer goes, and that the name is the client's own
word.

A registration is not stored. The id is the registration itself with a code that only this service can compute, so that
strangers who register fill no table, and every server knows every client.
"""

import base64
import binascii
import hmac
from collections.abc import Awaitable, Callable, Mapping, Sequence
from hashlib import sha256
from typing import Final, TypeAlias, final
from urllib.parse import urlsplit

import orjson
from typing_extensions import TypeIs

from sightline.domain.units import MINUTE_MS
from sightline.domain.value import Value
from sightline.identity.key_codec import KeyHasher
from sightline.identity.oauth.requests import (
    AuthorizationRequest,
    OAuthCode,
    OAuthError,
    check_redirect_uri,
    matches,
)
from sightline.identity.recent import RecentReads
from sightline.ports.clock import Clock

NAME_LENGTH_MAX: Final = 60
REDIRECT_URIS_MAX: Final = 10
REGISTRATION_LENGTH_MAX: Final = 1_500
"""Of an id, which is sent in URLs."""
DOCUMENT_BYTES_MAX: Final = 5_120
"""As draft-ietf-oauth-client-id-metadata-document recommends."""
_DOCUMENT_AGE_MS: Final = 10 * MINUTE_MS
_DOCUMENTS_MAX: Final = 1_000
_UNNAMED: Final = "unnamed client"

FetchDocument: TypeAlias = Callable[[str], Awaitable[bytes | None]]
"""Gets a document of at most `DOCUMENT_BYTES_MAX` bytes from a public address; None if there is none."""


@final
class OAuthClient(Value, kw_only=True):
    """A client. Its name is what it calls itself; `host` is who serves its description, if somebody does."""

    client_id: str
    name: str
    redirect_uris: tuple[str, ...]
    host: str | None = None


def client_digest(client_id: str) -> bytes:
    """The 32 bytes by which codes and tokens are bound to a client."""
    return sha256(client_id.encode()).digest()


@final
class OAuthClients:
    """Registers clients, and finds the client of a request."""

    def __init__(self, hasher: KeyHasher, clock: Clock, fetch: FetchDocument) -> None:
        self._hasher = hasher
        self._clock = clock
        self._fetch = fetch
        self._documents: RecentReads[str, OAuthClient] = RecentReads(size_max=_DOCUMENTS_MAX, ttl_ms=_DOCUMENT_AGE_MS)

    def register(self, metadata: Mapping[str, object]) -> OAuthClient:
        """Register a client, which gets no secret.

        Raises:
            OAuthError: invalid_redirect_uri or invalid_client_metadata.
        """
        name, uris = _described(metadata)
        grants = metadata.get("grant_types")
        if grants is not None and (not isinstance(grants, list) or "authorization_code" not in grants):
            raise OAuthError(OAuthCode.INVALID_CLIENT_METADATA, "grant_types must have authorization_code")
        body = orjson.dumps([self._clock.now_ms() // 1_000, name, list(uris)])
        text = base64.urlsafe_b64encode(body).decode().rstrip("=")
        client_id = f"{text}.{self._code_of(text)}"
        if len(client_id) > REGISTRATION_LENGTH_MAX:
            raise OAuthError(OAuthCode.INVALID_CLIENT_METADATA, "The name and the redirect URIs are too long together")
        return OAuthClient(client_id=client_id, name=name, redirect_uris=uris)

    async def client_of(self, request: AuthorizationRequest) -> OAuthClient:
        """Find the client of a request and check that its redirect URI is one of the client's.

        Raises:
            OAuthError: The client is unknown or the redirect URI is another one. The redirect URI must not be used.
        """
        is_url = request.client_id.startswith("https://")
        client = await self._of_document(request.client_id) if is_url else self._of_id(request.client_id)
        if client is None:
            raise OAuthError(OAuthCode.INVALID_CLIENT, "The client is not known; it must register again")
        if not any(matches(each, request.redirect_uri) for each in client.redirect_uris):
            raise OAuthError(OAuthCode.INVALID_REDIRECT_URI, "The client has not registered this redirect URI")
        return client

    def _code_of(self, text: str) -> str:
        return base64.urlsafe_b64encode(self._hasher.derive("oauth", "client", text)[:18]).decode()

    def _of_id(self, client_id: str) -> OAuthClient | None:
        text, _, code = client_id.partition(".")
        if len(client_id) > REGISTRATION_LENGTH_MAX or not client_id.isascii():
            return None
        if not hmac.compare_digest(code, self._code_of(text)):
            return None
        try:
            _, name, uris = orjson.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        except (binascii.Error, ValueError):  # the form of another version
            return None
        return OAuthClient(client_id=client_id, name=name, redirect_uris=tuple(uris))

    async def _of_document(self, url: str) -> OAuthClient:
        now_ms = self._clock.now_ms()
        found = self._documents.get(url, now_ms=now_ms)
        if found is None:
            found = await self._read_document(url)
            self._documents.put(url, found, read_at_ms=now_ms)
        return found

    async def _read_document(self, url: str) -> OAuthClient:
        parts = urlsplit(url)
        if parts.path in ("", "/") or parts.fragment or parts.username is not None or "/../" in f"{parts.path}/":
            raise OAuthError(OAuthCode.INVALID_CLIENT, "The URL of a client must have a path, and no fragment or user")
        raw = await self._fetch(url)
        if raw is None:
            raise OAuthError(OAuthCode.INVALID_CLIENT, f"No description of the client is at {url}")
        try:
            document = orjson.loads(raw)
        except orjson.JSONDecodeError as error:
            raise OAuthError(OAuthCode.INVALID_CLIENT, f"The description at {url} is not JSON") from error
        if not isinstance(document, dict) or document.get("client_id") != url:
            raise OAuthError(OAuthCode.INVALID_CLIENT, f"The client_id of the description must be {url}")
        name, uris = _described(document)
        return OAuthClient(client_id=url, name=name, redirect_uris=uris, host=parts.netloc)


def _described(metadata: Mapping[str, object]) -> tuple[str, tuple[str, ...]]:
    """The name and the redirect URIs of a client's metadata."""
    uris = metadata.get("redirect_uris")
    if not _is_texts(uris) or not 1 <= len(uris) <= REDIRECT_URIS_MAX:
        raise OAuthError(OAuthCode.INVALID_REDIRECT_URI, f"redirect_uris must be 1 to {REDIRECT_URIS_MAX} URIs")
    for uri in uris:
        check_redirect_uri(uri)
    method = metadata.get("token_endpoint_auth_method")
    if method == "private_key_jwt":
        raise OAuthError(OAuthCode.INVALID_CLIENT_METADATA, "token_endpoint_auth_method must be none")
    named = metadata.get("client_name")
    name = named if isinstance(named, str) else ""
    # Only letters and marks that are shown: a name must not turn the text around it, or hide a part of itself.
    shown = "".join(each for each in name if each.isprintable()).strip()[:NAME_LENGTH_MAX]
    return shown or _UNNAMED, tuple(uris)


def _is_texts(value: object) -> TypeIs[Sequence[str]]:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)
