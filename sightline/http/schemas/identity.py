"""Signing in, and who am I."""

from typing import Literal

from pydantic import Field, RootModel

from sightline.http.schemas.base import Address, Input, Instant, Output, Query, Text, Uuid, iso, iso_or_none
from sightline.http.schemas.workspaces import (
    KeyLimitsBody,
    MemberRoleName,
    ScopeName,
    WorkspaceBrief,
    WorkspaceRoleName,
)
from sightline.identity.oauth.requests import REQUEST_LENGTH_MAX
from sightline.ports.identity import Challenge as WalletChallenge
from sightline.ports.identity import Membership, ReceivedInvitation
from sightline.ports.identity import WalletSession as SignIn


class ChallengeBody(Input):
    """The wallet that will sign."""

    AREA = "auth"

    wallet_address: Address


class Challenge(Output):
    """What to sign: an EIP-4361 text, good once and for five minutes."""

    nonce: str
    message: str
    expires_at: Instant


class LoginBody(Input):
    """The signed challenge."""

    AREA = "auth"

    wallet_address: Address
    nonce: Text
    signature: Text = Field(description="Hex", examples=["0x" + "00" * 65])


class SignedIn(Output):
    """The wallet and the workspaces it can select. The session itself is the cookie svc_session."""

    wallet_address: Address
    workspaces: list[WorkspaceBrief]


class SelectBody(Input):
    """The workspace to act for."""

    AREA = "auth"

    workspace_id: Uuid


class Selected(Output):
    """The selected workspace, and what the wallet is in it."""

    workspace_id: Uuid
    role: MemberRoleName


class SignedOut(Output):
    """An empty object."""


class WalletSession(Output):
    """A sign-in of the wallet. `clientAddress` and `userAgent` are those of the sign-in."""

    session_id: Uuid
    signed_in_at: Instant
    last_used_at: Instant
    ended_at: Instant | None
    client_address: str
    user_agent: str
    is_current: bool


class WalletSessionList(Output):
    """The open sign-ins of the wallet, newest first, on one page."""

    items: list[WalletSession]
    next_cursor: None


class InvitingWorkspace(Output):
    """The workspace of an invitation. Sessions that it films are paid to `walletAddress`."""

    id: Uuid
    slug: str
    name: str
    roles: list[WorkspaceRoleName]
    wallet_address: Address


class Invitation(Output):
    """An open invitation of the wallet. Names are chosen by the inviter."""

    id: Uuid
    workspace: InvitingWorkspace
    role: MemberRoleName
    invited_by: Address
    created_at: Instant
    expires_at: Instant


class InvitationList(Output):
    """The oldest open invitations of the wallet, at most 20, on one page."""

    items: list[Invitation]
    next_cursor: None


class BoundWorkspace(Output):
    """The workspace that a key is bound to."""

    id: Uuid
    slug: str
    name: str
    roles: list[WorkspaceRoleName]


class KeyIdentity(Output):
    """An API key's identity."""

    kind: Literal["api_key"]
    workspace_id: Uuid
    key_id: Uuid
    scopes: list[ScopeName]
    environment: Literal["TEST", "LIVE"]
    workspace: BoundWorkspace


class WalletIdentity(Output):
    """A wallet session's identity. `workspaceId` and `role` are null until a workspace is selected."""

    kind: Literal["wallet_session"]
    wallet_address: Address
    workspace_id: Uuid | None
    role: MemberRoleName | None
    workspaces: list[WorkspaceBrief]
    expires_at: Instant


class AuthorizationQuery(Query):
    """The authorization request of a client."""

    AREA = "oauth"

    request: Text = Field(
        max_length=REQUEST_LENGTH_MAX, description="The query of the client's request to /oauth/authorize, unchanged"
    )


class AuthorizationAsked(Output):
    """What a client asks for. Its name is its own word, and proves nothing; `redirectHost` gets the answer."""

    client_name: str
    client_host: str | None = Field(description="Host that serves the client's description; null if it registered")
    redirect_host: str
    is_loopback: bool = Field(description="Whether the answer goes to a program on the member's own machine")
    scopes: list[ScopeName]
    deny_url: str = Field(description="Where to send the browser to refuse")
    refused: str | None = Field(description="Why the request cannot be allowed: then only `denyUrl` is of use")


class GrantBody(Input):
    """What a member allows a client. `limits` bound what its sessions may cost."""

    AREA = "oauth"
    REFUSES_MISSPELT = True

    request: Text = Field(max_length=REQUEST_LENGTH_MAX, examples=["client_id=...&redirect_uri=..."])
    days: Literal[1, 30, 90] = Field(description="How long the access lasts", examples=[30])
    limits: KeyLimitsBody | None = Field(default=None, description="Left out: the client may spend what the wallet has")


class Granted(Output):
    """Where to send the browser, with the code of the grant."""

    redirect_url: str


class Identity(RootModel[KeyIdentity | WalletIdentity]):
    """Who is calling."""


def challenge_json(challenge: WalletChallenge) -> dict[str, object]:
    """Present a challenge as `Challenge`."""
    return {
        "nonce": challenge.nonce,
        "message": challenge.message,
        "expiresAt": iso(challenge.expires_at_ms),
    }


def membership_json(membership: Membership) -> dict[str, object]:
    """Present one of a wallet's workspaces as `WorkspaceBrief`."""
    workspace = membership.workspace
    return {
        "id": workspace.id,
        "slug": workspace.slug,
        "name": workspace.name,
        "walletAddress": workspace.wallet_address,
        "role": membership.role,
    }


def invitation_json(received: ReceivedInvitation) -> dict[str, object]:
    """Present an invitation as `Invitation`."""
    invitation, workspace = received.invitation, received.workspace
    return {
        "id": invitation.id,
        "workspace": {
            "id": workspace.id,
            "slug": workspace.slug,
            "name": workspace.name,
            "roles": workspace.roles,
            "walletAddress": workspace.wallet_address,
        },
        "role": invitation.role,
        "invitedBy": invitation.invited_by,
        "createdAt": iso(invitation.created_at_ms),
        "expiresAt": iso(invitation.expires_at_ms),
    }


def wallet_session_json(session: SignIn, current_id: str) -> dict[str, object]:
    """Present a sign-in as `WalletSession`; `isCurrent` marks that of the caller."""
    return {
        "sessionId": session.session_id,
        "signedInAt": iso(session.signed_in_at_ms),
        "lastUsedAt": iso(session.last_used_at_ms),
        "endedAt": iso_or_none(session.ended_at_ms),
        "clientAddress": session.client_ip,
        "userAgent": session.user_agent,
        "isCurrent": session.session_id == current_id,
    }
