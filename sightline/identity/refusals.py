"""The refusals of identity, one constant each."""

from typing import Final

from sightline.domain.refusal import Code, Refusal

MISSING_CREDENTIAL: Final = Refusal(
    Code.NOT_AUTHENTICATED, "auth:missing", "Send an API key (Authorization: Bearer svc_...) or sign in"
)
INVALID_CREDENTIAL: Final = Refusal(
    Code.NOT_AUTHENTICATED, "auth:credential", "The API key or session cookie is not valid"
)
"""Malformed, unknown, forged or of another deployment. The answer does not say which."""
NO_BEARER: Final = Refusal(
    Code.NOT_AUTHENTICATED,
    "auth:credential",
    "The header has no scheme Bearer. Send an API key as Authorization: Bearer svc_...",
)
EXPIRED_SESSION: Final = Refusal(Code.NOT_AUTHENTICATED, "auth:session", "The sign-in has expired; sign in again")
SIGNATURE_NEEDED: Final = Refusal(
    Code.NOT_AUTHENTICATED,
    "auth:signatureNeeded",
    "The sign-in is older than this call allows; sign in again with the wallet",
)
"""The sign-in is older than this operation allows; sign in again."""
UNKNOWN_WALLET_SESSION: Final = Refusal(Code.NOT_FOUND, "auth:session", "The wallet has no sign-in with this id")
REVOKED_KEY: Final = Refusal(
    Code.REVOKED_API_KEY, "apiKey:revoked", "The API key was revoked; use another, or mint one"
)
EXPIRED_TOKEN: Final = Refusal(Code.NOT_AUTHENTICATED, "auth:expired", "The access token has expired; refresh it")
SUSPENDED: Final = Refusal(
    Code.NOT_AUTHORIZED, "workspace:suspended", "The workspace is suspended; ask the administrators of this service"
)
FOREIGN_ORIGIN: Final = Refusal(Code.NOT_AUTHORIZED, "auth:origin", "A page of this origin may not use the cookie")

BAD_ADDRESS: Final = Refusal(
    Code.INVALID_INPUT, "auth:walletAddress", "Write the wallet's address as 0x and 40 hexadecimal digits"
)
BAD_NONCE: Final = Refusal(
    Code.NOT_AUTHENTICATED, "auth:nonce", "The challenge is unknown, was used or has expired; ask for a new one"
)
BAD_SIGNATURE: Final = Refusal(
    Code.NOT_AUTHENTICATED, "auth:signature", "The signature is not that of the wallet over the text of the challenge"
)
NOT_A_MEMBER: Final = Refusal(Code.NOT_AUTHORIZED, "workspace:notMember", "The wallet is not a member of the workspace")

BAD_LABEL: Final = Refusal(Code.INVALID_INPUT, "apiKey:label", "A label has 1 to 80 characters")
BAD_ENVIRONMENT: Final = Refusal(Code.INVALID_INPUT, "apiKey:environment", "Write TEST, which is the only environment")
BAD_SCOPES: Final = Refusal(Code.INVALID_INPUT, "apiKey:scopes", "Name at least one scope, and only known ones")
KEY_LIMIT: Final = Refusal(Code.CONFLICT, "apiKey:limit", "The workspace has its maximum of API keys; revoke one")
UNKNOWN_KEY: Final = Refusal(Code.NOT_FOUND, "apiKey:unknown", "The workspace has no API key with this id")
GRACE_OVER: Final = Refusal(
    Code.INVALID_STATE, "apiKey:revoked", "The key's grace period has ended; mint a new key", state="REVOKED"
)
SHARE_LIMIT: Final = Refusal(
    Code.CONFLICT, "share:limit", "The session has its maximum of open share links; revoke one"
)
UNKNOWN_SHARE: Final = Refusal(Code.NOT_FOUND, "share:unknown", "The session has no share link with this id")

BAD_ROLE: Final = Refusal(Code.INVALID_INPUT, "workspace:role", "Write OWNER, ADMIN or VIEWER")
LAST_OWNER: Final = Refusal(
    Code.INVALID_STATE, "workspace:lastOwner", "The workspace would have no OWNER; make another member OWNER first"
)
UNKNOWN_MEMBER: Final = Refusal(Code.NOT_FOUND, "workspace:member", "The wallet is not a member of the workspace")

UNKNOWN_INVITATION: Final = Refusal(
    Code.NOT_FOUND, "invitation:unknown", "It was accepted, declined or withdrawn, it has expired, or it is another's"
)
INVITATION_LIMIT: Final = Refusal(
    Code.CONFLICT, "invitation:limit", "The workspace has its maximum of open invitations; withdraw one"
)
INVITER_LIMIT: Final = Refusal(
    Code.CONFLICT, "invitation:inviterLimit", "Your wallet has sent its maximum of invitations of 24 hours; wait"
)
INVITATION_DECLINED: Final = Refusal(
    Code.CONFLICT, "invitation:declined", "This wallet declined an invitation of yours in the last 24 hours"
)
