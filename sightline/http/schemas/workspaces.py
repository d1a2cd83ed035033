"""Workspaces, their members and API keys."""

from typing import Annotated, ClassVar, Literal, TypeAlias

from pydantic import AfterValidator, ConfigDict, Field, StringConstraints, model_validator

from sightline.domain.access import KeyLimits
from sightline.domain.addresses import shown_address
from sightline.domain.operator.model import Workspace as DomainWorkspace
from sightline.domain.units import MicroUsdc
from sightline.http.schemas.base import (
    LINE_PATTERN,
    SLUG_PATTERN,
    VISIBLE_PATTERN,
    Address,
    Input,
    Instant,
    Latitude,
    Longitude,
    Model,
    Money,
    Output,
    Text,
    Uuid,
    iso,
    iso_or_none,
    labelled,
)
from sightline.ports.identity import ApiKeyRecord
from sightline.ports.identity import Member as DomainMember

WorkspaceRoleName: TypeAlias = Literal["CONSUMER", "SUPPLIER"]
MemberRoleName: TypeAlias = Literal["OWNER", "ADMIN", "VIEWER"]
DeviceKindName: TypeAlias = Literal["PHONE", "LAPTOP", "DRONE", "PTZ", "FIXED", "OTHER"]
ScopeName: TypeAlias = Literal[
    "sessions:read",
    "sessions:create",
    "sessions:operate",
    "pricing:read",
    "wallet:read",
    "operators:write",
    "coverage:write",
    "webhooks:write",
]
Name: TypeAlias = Annotated[
    str,
    StringConstraints(strip_whitespace=True, min_length=1, max_length=80, pattern=LINE_PATTERN),
    # Trimmed before it is measured, hence something that is no white space.
    Field(json_schema_extra={"examples": ["Harbour Cams"], "pattern": VISIBLE_PATTERN}),
]
Slug: TypeAlias = Annotated[
    str,
    StringConstraints(pattern=SLUG_PATTERN),
    Field(json_schema_extra={"examples": ["harbour-cams"]}),
]


def are_unique(items: list[str]) -> list[str]:
    """Refuse a list with the same item twice."""
    if len(set(items)) != len(items):
        raise ValueError("items must be unique")
    return items


class CreateWorkspaceBody(Input):
    """A workspace, proved by the signature of the wallet that will own it."""

    AREA = "workspace"
    REFUSES_MISSPELT = True

    wallet_address: Address
    nonce: Text = Field(description="Of POST /workspaces/challenge")
    signature: Text = Field(description="Hex, over the challenge's message", examples=["0x" + "00" * 65])
    slug: Slug
    name: Name
    roles: Annotated[
        list[WorkspaceRoleName],
        Field(min_length=1, max_length=2, json_schema_extra={"uniqueItems": True}),
        AfterValidator(are_unique),
    ] = Field(examples=[["CONSUMER"]])


class PatchWorkspaceBody(Input):
    """What to change; at least one field. All but the name need the SUPPLIER role."""

    AREA = "workspace"
    REFUSES_NULL = True
    model_config: ClassVar = {
        "json_schema_extra": {
            "minProperties": 1,
            "dependentRequired": {"coverageLat": ["coverageLng"], "coverageLng": ["coverageLat"]},
        }
    }

    name: Name | None = None
    availability_state: Literal["ONLINE", "OFFLINE"] | None = None
    coverage_lat: Latitude | None = Field(default=None, description="Together with coverageLng")
    coverage_lng: Longitude | None = Field(default=None, description="Together with coverageLat")
    coverage_radius_meters: Annotated[float, Field(ge=1, le=100_000, allow_inf_nan=False)] | None = None
    device_kind: DeviceKindName | None = None

    @model_validator(mode="after")
    def _says_something(self) -> "PatchWorkspaceBody":
        if not self.model_fields_set:
            raise labelled("workspace:empty", "name at least one field to change")
        if (self.coverage_lat is None) != (self.coverage_lng is None):
            raise labelled("workspace:coverage", "coverageLat and coverageLng are set together")
        return self

    @property
    def is_rename(self) -> bool:
        """Whether nothing but the name is to change."""
        return self.model_fields_set == {"name"}


class Workspace(Output):
    """A workspace."""

    id: Uuid
    slug: str
    name: str
    wallet_address: Address
    roles: list[WorkspaceRoleName]
    availability_state: Literal["ONLINE", "OFFLINE", "BUSY"]
    coverage_lat: float | None
    coverage_lng: float | None
    coverage_radius_meters: float | None
    device_kind: DeviceKindName
    last_seen_at: Instant | None
    created_at: Instant
    created_by_wallet: Address
    deleted_at: Instant | None


class OwnWorkspace(Workspace):
    """The caller's workspace."""

    passed_over_until: Instant | None = Field(
        description="Of an operator that is not OFFLINE: until when others are dispatched before it and it cannot "
        "accept, because its wallet did not start assigned sessions; null if nothing is known of that"
    )


class WorkspaceWithRole(Workspace):
    """A workspace and what the wallet is in it."""

    role: MemberRoleName


class WorkspaceList(Output):
    """The workspaces of a wallet."""

    items: list[WorkspaceWithRole]
    next_cursor: None


class WorkspaceBrief(Output):
    """A workspace as it is named elsewhere. Sessions that it films are paid to `walletAddress`."""

    id: Uuid
    slug: str
    name: str
    wallet_address: Address
    role: MemberRoleName


class AddMemberBody(Input):
    """A wallet and its role."""

    AREA = "member"
    REFUSES_MISSPELT = True

    wallet_address: Address
    role: MemberRoleName


class Member(Output):
    """A wallet's role in a workspace. An INVITED wallet has no rights until it accepts; the last four are null for
    an ACTIVE member."""

    workspace_id: Uuid
    wallet_address: Address
    role: MemberRoleName
    status: Literal["ACTIVE", "INVITED"]
    invitation_id: Uuid | None
    invited_by: Address | None
    invited_at: Instant | None
    expires_at: Instant | None


class MemberList(Output):
    """Members, owners first, then invited wallets."""

    items: list[Member]
    next_cursor: None


class KeyLimitsBody(Model):
    """What the sessions that the key creates may cost at most. At least one limit."""

    model_config = ConfigDict(strict=True, extra="forbid", json_schema_extra={"minProperties": 1})

    per_session_micro_usdc: Money | None = Field(default=None, description="Largest hold of one session")
    per_day_micro_usdc: Money | None = Field(
        default=None,
        description="Sum over the sessions created on one UTC day: holds of open sessions, charges of ended ones",
    )

    @model_validator(mode="after")
    def _limits_something(self) -> "KeyLimitsBody":
        if self.per_session_micro_usdc is None and self.per_day_micro_usdc is None:
            raise labelled("apiKey:limits", "name perSessionMicroUsdc, perDayMicroUsdc or both")
        return self

    def to_domain(self) -> KeyLimits:
        """Return the limits."""
        per_session, per_day = self.per_session_micro_usdc, self.per_day_micro_usdc
        return KeyLimits(
            per_session=None if per_session is None else MicroUsdc(int(per_session)),
            per_day=None if per_day is None else MicroUsdc(int(per_day)),
        )


class ApiKeyLimits(Output):
    """What the sessions that a key creates may cost at most; null: no limit."""

    per_session_micro_usdc: Money | None
    per_day_micro_usdc: Money | None


class MintKeyBody(Input):
    """A new API key."""

    AREA = "apiKey"
    REFUSES_MISSPELT = True

    label: Name = Field(examples=["vision agent"])
    environment: Literal["TEST"] = Field(description="LIVE is refused until there is a production chain")
    scopes: Annotated[
        list[ScopeName],
        Field(min_length=1, max_length=8, json_schema_extra={"uniqueItems": True}),
        AfterValidator(are_unique),
    ] = Field(examples=[["sessions:read", "sessions:create", "pricing:read", "wallet:read"]])
    limits: KeyLimitsBody | None = Field(default=None, description="Left out: the key may spend what the wallet has")


class ApiKey(Output):
    """What is known of a key; never the key."""

    key_id: Uuid
    workspace_id: Uuid
    label: str
    prefix: str = Field(description="The public head of the key")
    environment: Literal["TEST", "LIVE"]
    scopes: list[ScopeName]
    limits: ApiKeyLimits | None
    created_at: Instant
    created_by_wallet: Address
    last_used_at: Instant | None
    revoked_at: Instant | None
    grace_period_end: Instant | None = Field(description="Until when a revoked key goes on working")
    expires_at: Instant | None = Field(description="When a grant to a client ends; null for a key that was minted")


class MintedKey(ApiKey):
    """A fresh key, shown once."""

    plaintext: str = Field(description="The key itself. It cannot be recovered later")


class ApiKeyList(Output):
    """The workspace's keys, revoked ones too, newest first."""

    items: list[ApiKey]
    next_cursor: None


def workspace_json(workspace: DomainWorkspace) -> dict[str, object]:
    """Present a workspace as `Workspace`."""
    return {
        "id": workspace.id,
        "slug": workspace.slug,
        "name": workspace.name,
        "walletAddress": workspace.wallet_address,
        "roles": workspace.roles,
        "availabilityState": workspace.availability,
        "coverageLat": workspace.coverage_lat,
        "coverageLng": workspace.coverage_lng,
        "coverageRadiusMeters": workspace.coverage_radius_m,
        "deviceKind": workspace.device_kind,
        "lastSeenAt": iso_or_none(workspace.last_seen_at_ms),
        "createdAt": iso(workspace.created_at_ms),
        "createdByWallet": workspace.created_by_wallet,
        "deletedAt": iso_or_none(workspace.deleted_at_ms),
    }


def own_workspace_json(workspace: DomainWorkspace, passed_over_until_ms: int | None) -> dict[str, object]:
    """Present the caller's workspace as `OwnWorkspace`."""
    return workspace_json(workspace) | {"passedOverUntil": iso_or_none(passed_over_until_ms)}


def member_json(member: DomainMember) -> dict[str, object]:
    """Present a member as `Member`."""
    invitation = member.invitation
    return {
        "workspaceId": member.workspace_id,
        "walletAddress": member.wallet_address,
        "role": member.role,
        "status": "ACTIVE" if invitation is None else "INVITED",
        "invitationId": None if invitation is None else invitation.id,
        "invitedBy": None if invitation is None else invitation.invited_by,
        "invitedAt": None if invitation is None else iso(invitation.created_at_ms),
        "expiresAt": None if invitation is None else iso(invitation.expires_at_ms),
    }


def api_key_json(record: ApiKeyRecord) -> dict[str, object]:
    """Present the record of a key as `ApiKey`."""
    return {
        "keyId": record.key_id,
        "workspaceId": record.workspace_id,
        "label": record.label,
        "prefix": record.prefix,
        "environment": record.environment,
        "scopes": sorted(record.scopes),
        "limits": None if record.limits is None else _limits_json(record.limits),
        "createdAt": iso(record.created_at_ms),
        "createdByWallet": shown_address(record.created_by_wallet),
        "lastUsedAt": iso_or_none(record.last_used_at_ms),
        "revokedAt": iso_or_none(record.revoked_at_ms),
        "gracePeriodEnd": iso_or_none(record.grace_ends_at_ms),
        "expiresAt": iso_or_none(record.expires_at_ms),
    }


def _limits_json(limits: KeyLimits) -> dict[str, object]:
    return {
        "perSessionMicroUsdc": None if limits.per_session is None else str(limits.per_session),
        "perDayMicroUsdc": None if limits.per_day is None else str(limits.per_day),
    }
