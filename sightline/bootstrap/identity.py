"""Connect the services of the identity package."""

from typing import Final, final
from urllib.parse import urlsplit

from sightline.bootstrap.core import Core
from sightline.bootstrap.membership.peer_wakeups import connect_sign_ins
from sightline.domain.access import Holder, Operation, Principal, WalletPrincipal
from sightline.domain.errors import RefusedError
from sightline.domain.units import MINUTE_MS
from sightline.domain.value import Value
from sightline.identity.api_keys import ApiKeys, ViewKeys, ViewShares
from sightline.identity.authenticate import Authenticator
from sightline.identity.authorize import AuthorizeOptions, Authorizer
from sightline.identity.cookies import CookieCodec, CookieKey, parse_cookie_keys
from sightline.identity.invitations import Invitations
from sightline.identity.key_codec import KeyHasher
from sightline.identity.members import Members
from sightline.identity.oauth.clients import OAuthClients
from sightline.identity.oauth.grants import Grants
from sightline.identity.sign_in import SignIn, SignInOptions
from sightline.identity.signatures import SignatureVerifier
from sightline.identity.wallet_sessions import WalletSessionOptions, WalletSessions
from sightline.ports.identity import IdentityStore
from sightline.ports.webhooks import PushSubscription
from sightline.storage.postgres.grants import PostgresGrants
from sightline.storage.postgres.identity import PostgresIdentityStore
from sightline.storage.postgres.operations.invitations import PostgresInvitations

COOKIE_KEY_NAME: Final = "k1"
LOCAL_AUDIENCE: Final = "sightline-local"
"""Audience of cookies when no public URL is set: a local server may get another port after a restart."""


@final
class Identity(Value, kw_only=True):
    """The services of the identity package."""

    store: IdentityStore
    authenticator: Authenticator
    sign_in: SignIn
    members: Members
    invitations: Invitations
    api_keys: ApiKeys
    oauth_clients: OAuthClients
    grants: Grants
    view_keys: ViewKeys
    shares: ViewShares
    cookies: CookieCodec
    sessions: WalletSessions
    authorizer: Authorizer


def make_identity(core: Core) -> Identity:
    """Create the services of the identity package."""
    settings, secrets, clock, ids = core.base.settings, core.base.secrets, core.base.clock, core.base.ids
    stores = core.stores
    store = PostgresIdentityStore(stores.database)
    hasher = KeyHasher(secrets.key_pepper)
    configured = settings.cookie_keys
    cookie_keys = (
        parse_cookie_keys(configured.get_secret_value())
        if configured is not None
        else [CookieKey(COOKIE_KEY_NAME, secrets.cookie_key)]
    )
    cookies = CookieCodec(
        cookie_keys,
        audience=settings.public_url or LOCAL_AUDIENCE,
        is_https=core.base.public_url.startswith("https:"),
    )
    members = Members(stores.relations, stores.rows.workspaces, clock, record=stores.withdrawals.record)
    is_suspended = core.administration.suspensions.is_suspended
    sign_in_options = SignInOptions(
        domain=urlsplit(core.base.public_url).netloc, uri=core.base.public_url, chain_id=core.chain.config.chain_id
    )
    verifier = SignatureVerifier(core.chain.reader)
    sessions = WalletSessions(
        store,
        clock,
        ids,
        WalletSessionOptions(idle_timeout_ms=settings.session_idle_minutes * MINUTE_MS),
        record=stores.withdrawals.record,
    )
    connect_sign_ins(core.membership.peers, sessions)
    api_keys = ApiKeys(store, hasher, clock, ids, record=stores.withdrawals.record)
    authenticator = Authenticator(store, cookies, sessions, hasher, clock)
    authorizer = Authorizer(
        members,
        clock,
        AuthorizeOptions(signature_age_max_ms=settings.signature_age_minutes * MINUTE_MS),
        is_suspended=is_suspended,
    )

    async def may_watch(holder: Holder) -> bool:
        try:
            await authorizer.authorize(await authenticator.principal_of(holder), Operation.WATCH_VIDEO)
        except RefusedError:
            return False
        return True

    async def may_receive(subscription: PushSubscription) -> bool:
        """Asked of a wallet without its sign-in, which ends after hours: a phone is told of jobs for longer."""
        try:
            if subscription.key_id is not None:
                key = Holder(is_key=True, credential_id=subscription.key_id, workspace_id=subscription.workspace_id)
                principal: Principal = await authenticator.principal_of(key)
            else:
                assert subscription.wallet is not None
                principal = WalletPrincipal(
                    session_id="",
                    wallet_address=subscription.wallet,
                    workspace_id=subscription.workspace_id,
                    role=None,
                    signed_in_at_ms=0,
                    expires_at_ms=0,
                )
            await authorizer.authorize(principal, Operation.RECEIVE_PUSHES)
        except RefusedError:
            return False
        return True

    core.video.access.may_watch = may_watch
    core.webhooks.pushes.may_receive = may_receive
    return Identity(
        store=store,
        authenticator=authenticator,
        sign_in=SignIn(store, members, verifier, sessions, cookies, clock, ids, sign_in_options),
        members=members,
        invitations=Invitations(
            PostgresInvitations(stores.database),
            members,
            stores.relations,
            stores.rows.workspaces,
            clock,
            ids,
            is_suspended=is_suspended,
        ),
        api_keys=api_keys,
        oauth_clients=OAuthClients(hasher, clock, core.webhooks.documents.get),
        grants=Grants(PostgresGrants(stores.database), api_keys, hasher, clock, ids),
        view_keys=ViewKeys(store, hasher, clock, is_suspended=is_suspended),
        shares=ViewShares(
            store, hasher, clock, ids, record=stores.withdrawals.record, on_ended=core.video.access.withdraw
        ),
        cookies=cookies,
        sessions=sessions,
        authorizer=authorizer,
    )
