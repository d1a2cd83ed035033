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
EXPIRED_SESSION: Final = Refusal(Code.NOT_AUTHENTICATED, "auth:session", "The sign-in has expired; sign in again")
SIGNATURE_NEEDED: Final = Refusal(Code.NOT_AUTHENTICATED, "auth:signatureNeeded")
"""The sign-in is older than this operation allows; sign in again."""
UNKNOWN_WALLET_SESSION: Final = Refusal(Code.NOT_FOUND, "auth:session")
REVOKED_KEY: Final = Refusal(Code.REVOKED_API_KEY, "apiKey:revoked")
EXPIRED_TOKEN: Final = Refusal(Code.NOT_AUTHENTICATED, "auth:expired", "The access token has expired; refresh it")
SUSPENDED: Final = Refusal(
    Code.NOT_AUTHORIZED, "workspace:suspended", "The workspace is suspended; ask the administrators of this service"
)
FOREIGN_ORIGIN: Final = Refusal(Code.NOT_AUTHORIZED, "auth:origin")

BAD_ADDRESS: Final = Refusal(Code.INVALID_INPUT, "auth:walletAddress")
BAD_NONCE: Final = Refusal(Code.NOT_AUTHENTICATED, "auth:nonce")
BAD_SIGNATURE: Final = Refusal(Code.NOT_AUTHENTICATED, "auth:signature")
NOT_A_MEMBER: Final = Refusal(Code.NOT_AUTHORIZED, "workspace:notMember")

BAD_LABEL: Final = Refusal(Code.INVALID_INPUT, "apiKey:label")
BAD_ENVIRONMENT: Final = Refusal(Code.INVALID_INPUT, "apiKey:environment")
BAD_SCOPES: Final = Refusal(Code.INVALID_INPUT, "apiKey:scopes")
KEY_LIMIT: Final = Refusal(Code.CONFLICT, "apiKey:limit")
UNKNOWN_KEY: Final = Refusal(Code.NOT_FOUND, "apiKey:unknown")
GRACE_OVER: Final = Refusal(
    Code.INVALID_STATE, "apiKey:revoked", "The key's grace period has ended; mint a new key", state="REVOKED"
)
SHARE_LIMIT: Final = Refusal(
    Code.CONFLICT, "share:limit", "The session has its maximum of open share links; revoke one"
)
UNKNOWN_SHARE: Final = Refusal(Code.NOT_FOUND, "share:unknown")

BAD_ROLE: Final = Refusal(Code.INVALID_INPUT, "workspace:role")
LAST_OWNER: Final = Refusal(Code.INVALID_STATE, "workspace:lastOwner")
UNKNOWN_MEMBER: Final = Refusal(Code.NOT_FOUND, "workspace:member")

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
