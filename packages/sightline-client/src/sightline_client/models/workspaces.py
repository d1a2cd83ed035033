"""Workspaces, members, keys, sign-ins and heartbeats."""

from typing import Annotated, Literal

from pydantic import Field

from sightline_client.models.base import (
    Availability,
    DeviceKind,
    Environment,
    MemberRole,
    MemberStatus,
    Model,
    Money,
    Role,
    Scope,
    Secret,
    Time,
)


class Health(Model):
    """The server answers."""

    ok: bool
    surface: str
    version: str
    build_sha: str


class Challenge(Model):
    """A text for a wallet to sign."""

    nonce: str
    message: str
    expires_at: Time


class WorkspaceBrief(Model):
    """A workspace of a wallet, and the wallet's role in it. Sessions that it films are paid to `wallet_address`."""

    id: str
    slug: str
    name: str
    wallet_address: str = ""
    role: MemberRole


class SignedIn(Model):
    """A wallet that signed in. The client stores the cookie."""

    wallet_address: str
    workspaces: list[WorkspaceBrief]


class Selected(Model):
    """The workspace that the sign-in works in."""

    workspace_id: str
    role: MemberRole


class SignedOut(Model):
    """The sign-in has ended."""


class WalletSession(Model):
    """An open sign-in of a wallet."""

    session_id: str
    signed_in_at: Time
    last_used_at: Time
    ended_at: Time | None = None
    client_address: str
    user_agent: str
    is_current: bool


class WalletSessionList(Model):
    """All open sign-ins."""

    items: list[WalletSession]
    next_cursor: None = None


class BoundWorkspace(Model):
    """The workspace of an API key."""

    id: str
    slug: str
    name: str
    roles: list[Role]


class KeyIdentity(Model):
    """The caller is a program with an API key."""

    kind: Literal["api_key"]
    workspace_id: str
    key_id: str
    scopes: list[Scope]
    environment: Environment
    workspace: BoundWorkspace


class WalletIdentity(Model):
    """The caller is a person who signed in with a wallet."""

    kind: Literal["wallet_session"]
    wallet_address: str
    workspace_id: str | None = None
    role: MemberRole | None = None
    workspaces: list[WorkspaceBrief]
    expires_at: Time


Identity = Annotated[KeyIdentity | WalletIdentity, Field(discriminator="kind")]


class Workspace(Model):
    """A tenant."""

    id: str
    slug: str
    name: str
    wallet_address: str
    roles: list[Role]
    availability_state: Availability
    coverage_lat: float | None = None
    coverage_lng: float | None = None
    coverage_radius_meters: float | None = None
    device_kind: DeviceKind
    last_seen_at: Time | None = None
    created_at: Time
    created_by_wallet: str
    deleted_at: Time | None = None


class OwnWorkspace(Workspace):
    """The caller's workspace."""

    passed_over_until: Time | None = None
    """Of an operator that is not OFFLINE: until when others are dispatched before it and it cannot accept, because its
    wallet did not start assigned sessions."""


class WorkspaceWithRole(Workspace):
    """A workspace and the caller's role in it."""

    role: MemberRole


class WorkspaceList(Model):
    """All workspaces of a wallet."""

    items: list[WorkspaceWithRole]
    next_cursor: None = None


class Member(Model):
    """A wallet with a role in a workspace. An INVITED wallet has no rights until it accepts; the last four are None
    for an ACTIVE member."""

    workspace_id: str
    wallet_address: str
    role: MemberRole
    status: MemberStatus = MemberStatus.ACTIVE
    invitation_id: str | None = None
    invited_by: str | None = None
    invited_at: Time | None = None
    expires_at: Time | None = None


class MemberList(Model):
    """All members of a workspace, then invited wallets."""

    items: list[Member]
    next_cursor: None = None


class InvitingWorkspace(Model):
    """The workspace of an invitation. Sessions that it films are paid to `wallet_address`."""

    id: str
    slug: str
    name: str
    roles: list[Role]
    wallet_address: str


class Invitation(Model):
    """An open invitation of the wallet. Names are chosen by the inviter."""

    id: str
    workspace: InvitingWorkspace
    role: MemberRole
    invited_by: str
    created_at: Time
    expires_at: Time


class InvitationList(Model):
    """The oldest open invitations of a wallet, at most 20."""

    items: list[Invitation]
    next_cursor: None = None


class ApiKeyLimits(Model):
    """Spending limits of an API key; None: no limit."""

    per_session_micro_usdc: Money | None = None
    per_day_micro_usdc: Money | None = None


class ApiKey(Model):
    """An API key without its plaintext."""

    key_id: str
    workspace_id: str
    label: str
    prefix: str
    environment: Environment
    scopes: list[Scope]
    limits: ApiKeyLimits | None = None
    created_at: Time
    created_by_wallet: str
    last_used_at: Time | None = None
    revoked_at: Time | None = None
    grace_period_end: Time | None = None
    expires_at: Time | None = None
    """When a grant to an MCP client ends; None: the key was minted, and has no end."""


class MintedKey(ApiKey):
    """A new API key. `plaintext` is shown once; repr() leaves it out."""

    plaintext: Secret


class ApiKeyList(Model):
    """All keys of a workspace."""

    items: list[ApiKey]
    next_cursor: None = None


class HeartbeatVerdict(Model):
    """Whether one heartbeat was accepted."""

    sequence: int
    ok: bool
    code: str | None = None
    detail: str | None = None
    message: str | None = None
    hint: str | None = None
    last_sequence: int | None = None


class HeartbeatVerdicts(Model):
    """One verdict per heartbeat, and the workspace afterwards."""

    items: list[HeartbeatVerdict]
    workspace: Workspace
