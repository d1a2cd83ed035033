"""The calls of the interface, grouped by resource. Each method is one call."""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from pydantic import TypeAdapter

from sightline_client._async.events import AsyncEvents
from sightline_client._async.frames import AsyncFrames, fetch_frame, fetch_next
from sightline_client._async.receipt import AsyncReceipt
from sightline_client._async.transport import AsyncTransport
from sightline_client.clip import Clip
from sightline_client.errors import ApiError, OutcomeUnknownError, ReceiptError
from sightline_client.escrow import Payment, TypedDataSigner
from sightline_client.frame import FRAME_MAX_AGE_MS, Frame
from sightline_client.funds import payment_steps
from sightline_client.models import (
    ApiKey,
    ApiKeyLimits,
    ApiKeyList,
    AssignedSession,
    CancelledAssignments,
    Challenge,
    ExtensionTerms,
    HeartbeatVerdicts,
    Identity,
    Invitation,
    InvitationList,
    MadeShare,
    Member,
    MemberList,
    Meter,
    MeterEvent,
    MeterEventPage,
    MintedKey,
    MonthStatement,
    OwnWorkspace,
    PermitOffer,
    RelayedPermit,
    Selected,
    Session,
    SessionPage,
    SessionTerms,
    Settlement,
    SettlementState,
    Share,
    SharedView,
    ShareList,
    SignedIn,
    SignedOut,
    StartedSession,
    Statement,
    StoredMandate,
    ViewerToken,
    Wallet,
    WalletEvent,
    WalletEventPage,
    WalletSession,
    WalletSessionList,
    Workspace,
    WorkspaceBrief,
    WorkspaceList,
    WorkspaceWithRole,
)
from sightline_client.money import require_whole_micro_usdc
from sightline_client.runtime import async_sleep, monotonic_s
from sightline_client.signers import require_wallet, require_wallet_of
from sightline_client.wire import given, segment, session_seconds, session_segment, wire_limits
from sightline_client.wording import LACKS

SIGN_IN_ATTEMPTS = 3
SETTLEMENT_POLL_S = 0.5
IDENTITY: TypeAdapter[Identity] = TypeAdapter(Identity)


class MessageSigner(Protocol):
    """A wallet that signs texts (EIP-191 personal_sign), for example `sightline_client.wallet.LocalWallet`."""

    @property
    def address(self) -> str:
        """Address of the wallet."""

    def sign(self, message: str) -> str:
        """Return the signature as hex with the prefix 0x."""


class AsyncAuth:
    """Sign-in with a wallet. The client stores the cookie; it then needs no API key."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def me(self) -> Identity:
        """Return who the credential belongs to."""
        return await self._transport.get(IDENTITY, "/me")

    async def challenge(self, wallet_address: str) -> Challenge:
        """Get a text for a wallet to sign for a login."""
        body = {"walletAddress": wallet_address}
        return await self._transport.change(Challenge, "POST", "/auth/wallet/challenge", body)

    async def login(self, *, wallet_address: str, nonce: str, signature: str) -> SignedIn:
        """Log in with a signed challenge. Later calls use this sign-in in place of an API key.

        A nonce is valid once, so that this call is never repeated.
        """
        body = {"walletAddress": wallet_address, "nonce": nonce, "signature": signature}
        data = await self._transport.data("POST", "/auth/wallet/login", body=body)
        self._transport.use_cookie()
        return SignedIn.model_validate(data)

    async def sign_in(self, wallet: MessageSigner, *, workspace_id: str | None = None) -> SignedIn:
        """Get a challenge, sign it and log in; select a workspace if one is named."""
        require_wallet(wallet)
        signed_in: SignedIn | None = None
        attempts = 0
        while signed_in is None:
            attempts += 1
            challenge = await self.challenge(wallet.address)
            signature = wallet.sign(challenge.message)
            try:
                signed_in = await self.login(wallet_address=wallet.address, nonce=challenge.nonce, signature=signature)
            except OutcomeUnknownError:  # the nonce may be used up: a new challenge is needed
                if attempts == SIGN_IN_ATTEMPTS:
                    raise
        if workspace_id is not None:
            await self.select(workspace_id)
        return signed_in

    async def select(self, workspace_id: str) -> Selected:
        """Select the workspace that the sign-in works in."""
        return await self._transport.change(Selected, "POST", "/auth/workspace/select", {"workspaceId": workspace_id})

    async def logout(self) -> SignedOut:
        """End the sign-in."""
        return await self._transport.change(SignedOut, "POST", "/auth/logout")

    async def sign_ins(self) -> Sequence[WalletSession]:
        """List the open sign-ins of the wallet."""
        return (await self._transport.get(WalletSessionList, "/me/sessions")).items

    async def end_sign_in(self, sign_in_id: str) -> WalletSession:
        """End one sign-in."""
        return await self._transport.change(WalletSession, "DELETE", f"/me/sessions/{segment(sign_in_id)}")

    async def invitations(self) -> Sequence[Invitation]:
        """List the open invitations of the signed-in wallet, oldest first, at most 20."""
        return (await self._transport.get(InvitationList, "/me/invitations")).items

    async def invitation(self, invitation_id: str) -> Invitation:
        """Read an open invitation of the wallet, also one that `invitations` does not list."""
        return await self._transport.get(Invitation, f"/me/invitations/{segment(invitation_id)}")

    async def accept_invitation(self, invitation_id: str) -> WorkspaceBrief:
        """Become a member of the workspace; select it afterwards."""
        path = f"/me/invitations/{segment(invitation_id)}/accept"
        return await self._transport.change(WorkspaceBrief, "POST", path)

    async def decline_invitation(self, invitation_id: str) -> Invitation:
        """Decline an invitation."""
        return await self._transport.change(Invitation, "DELETE", f"/me/invitations/{segment(invitation_id)}")


class AsyncWorkspaces:
    """Workspaces, their members and keys, and the location of their device."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def create(self, wallet: MessageSigner, *, slug: str, name: str, roles: Iterable[str]) -> OwnWorkspace:
        """Create a workspace that the wallet owns."""
        require_wallet(wallet)
        challenge = await self.challenge(wallet.address)
        body = {
            "walletAddress": wallet.address,
            "nonce": challenge.nonce,
            "signature": wallet.sign(challenge.message),
            "slug": slug,
            "name": name,
            "roles": list(roles),
        }
        return await self._transport.change(OwnWorkspace, "POST", "/workspaces", body)

    async def challenge(self, wallet_address: str) -> Challenge:
        """Get a text for a wallet to sign for a new workspace."""
        body = {"walletAddress": wallet_address}
        return await self._transport.change(Challenge, "POST", "/workspaces/challenge", body)

    async def list(self) -> Sequence[WorkspaceWithRole]:
        """List the workspaces of the signed-in wallet."""
        return (await self._transport.get(WorkspaceList, "/workspaces")).items

    async def get(self, workspace_id: str) -> OwnWorkspace:
        """Read a workspace."""
        return await self._transport.get(OwnWorkspace, f"/workspaces/{segment(workspace_id)}")

    async def update(
        self,
        workspace_id: str,
        *,
        name: str | None = None,
        availability_state: str | None = None,
        coverage_lat: float | None = None,
        coverage_lng: float | None = None,
        coverage_radius_meters: float | None = None,
        device_kind: str | None = None,
    ) -> OwnWorkspace:
        """Change the fields that are given. The two coordinates go together."""
        body = given(
            name=name,
            availabilityState=availability_state,
            coverageLat=coverage_lat,
            coverageLng=coverage_lng,
            coverageRadiusMeters=coverage_radius_meters,
            deviceKind=device_kind,
        )
        return await self._transport.change(OwnWorkspace, "PATCH", f"/workspaces/{segment(workspace_id)}", body)

    async def statement(self, workspace_id: str, month: str) -> MonthStatement:
        """Read the statement of a month, YYYY-MM in UTC; the first call after the month writes its invoice."""
        path = f"/workspaces/{segment(workspace_id)}/statements/{segment(month)}"
        return await self._transport.get(MonthStatement, path)

    async def statement_pdf(self, workspace_id: str, month: str) -> bytes:
        """Read the statement of a month with its invoice as PDF; it lists the first 1,000 sessions of each side."""
        path = f"/workspaces/{segment(workspace_id)}/statements/{segment(month)}"
        return (await self._transport.send("GET", path, query={"format": "pdf"})).content

    async def members(self, workspace_id: str) -> Sequence[Member]:
        """List the members, then the invited wallets."""
        return (await self._transport.get(MemberList, f"/workspaces/{segment(workspace_id)}/members")).items

    async def add_member(self, workspace_id: str, *, wallet_address: str, role: str) -> Member:
        """Invite a wallet as OWNER, ADMIN or VIEWER; a member gets the role at once."""
        body = {"walletAddress": wallet_address, "role": role}
        return await self._transport.change(Member, "POST", f"/workspaces/{segment(workspace_id)}/members", body)

    async def remove_member(self, workspace_id: str, wallet_address: str) -> Member:
        """Remove a member, or withdraw an invitation."""
        path = f"/workspaces/{segment(workspace_id)}/members/{segment(wallet_address)}"
        return await self._transport.change(Member, "DELETE", path)

    async def post_location(
        self, workspace_id: str, *, lat: float, lng: float, sequence: int, **details: object
    ) -> Workspace:
        """Send one heartbeat. `details` are the other fields of HeartbeatBody, for example accuracyMeters."""
        body = {"lat": lat, "lng": lng, "sequence": sequence, **details}
        return await self._transport.change(Workspace, "POST", f"/workspaces/{segment(workspace_id)}/location", body)

    async def post_locations(self, workspace_id: str, items: Iterable[Mapping[str, object]]) -> HeartbeatVerdicts:
        """Send up to 200 stored heartbeats, oldest first; each is accepted or refused separately."""
        body = {"items": [dict(item) for item in items]}
        return await self._transport.change(
            HeartbeatVerdicts, "POST", f"/workspaces/{segment(workspace_id)}/locations", body
        )

    async def reset_location(self, workspace_id: str) -> Workspace:
        """Let the next heartbeat have any sequence."""
        return await self._transport.change(Workspace, "POST", f"/workspaces/{segment(workspace_id)}/location/reset")

    def events(self, workspace_id: str) -> AsyncEvents:
        """Follow the workspace and its assignments: `async with sl.workspaces.events(id) as events`."""
        return AsyncEvents(self._transport, f"/workspaces/{segment(workspace_id)}/events")


class AsyncKeys:
    """API keys of a workspace. Only a wallet's sign-in may manage them."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def mint(
        self,
        workspace_id: str,
        *,
        label: str,
        scopes: Iterable[str],
        environment: str = "TEST",
        limits: ApiKeyLimits | None = None,
    ) -> MintedKey:
        """Mint a key. Its plaintext is in this answer only; an answer that was lost is not repeated."""
        body = given(label=label, scopes=list(scopes), environment=environment, limits=limits and wire_limits(limits))
        data = await self._transport.data("POST", f"/workspaces/{segment(workspace_id)}/api-keys", body=body)
        return MintedKey.model_validate(data)

    async def list(self, workspace_id: str) -> Sequence[ApiKey]:
        """List the keys without their plaintexts."""
        return (await self._transport.get(ApiKeyList, f"/workspaces/{segment(workspace_id)}/api-keys")).items

    async def revoke(self, workspace_id: str, key_id: str) -> ApiKey:
        """Revoke a key; it works for 60 more seconds."""
        return await self._transport.change(
            ApiKey, "POST", f"/workspaces/{segment(workspace_id)}/api-keys/{segment(key_id)}/revoke"
        )

    async def keep(self, workspace_id: str, key_id: str) -> ApiKey:
        """Take back a revocation while its 60 seconds last."""
        return await self._transport.change(
            ApiKey, "POST", f"/workspaces/{segment(workspace_id)}/api-keys/{segment(key_id)}/keep"
        )


class AsyncSessions:
    """Sessions, their frames and their meters."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def create(
        self,
        lat: float,
        lng: float,
        *,
        seconds: int | None = None,
        wait_timeout_seconds: int | None = None,
        radius_meters: int | None = None,
        quote_id: str | None = None,
        workspace_id: str | None = None,
        instructions: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        consumer_lease_seconds: int | None = None,
        require_coverage: bool = True,
        max_hold_micro_usdc: int | None = None,
        payment: Payment | None = None,
        idempotency_key: str | None = None,
    ) -> Session:
        """Request a session. The charge is at most `rate x seconds`, which is held until the session is over.

        Args:
            seconds: Longest duration, 1 to 14400; default 600.
            wait_timeout_seconds: How long the session waits for an operator; default 300.
            radius_meters: Radius of the geofence, 50 to 10000; default 500.
            instructions: Text for the operator.
            metadata: At most 2 KB of JSON that is returned to the consumer only.
            require_coverage: Dispatch only operators whose coverage contains the place. False takes a distant operator
                if there is no other; its video shows another place, and the meter pauses.
            consumer_lease_seconds: End the LIVE session when its consumer is silent for this long, 15 to 600.
            max_hold_micro_usdc: The largest hold that the caller agrees to.
            payment: What the payer has signed, where the server holds the amount in escrow: `sign_payment(...)` or
                `sign_mandate(...)` of `sightline_client.escrow`.
            idempotency_key: The same key creates no second session, also in another process.

        Raises:
            ConflictError: The hold would be above `max_hold_micro_usdc` (`pricing:aboveMaximum`). Nothing was created.
            InvalidArgumentError: max_hold_micro_usdc is not a whole number, such as 0.5, or seconds is below 1.
        """
        require_whole_micro_usdc("max_hold_micro_usdc", max_hold_micro_usdc)
        body = given(
            lat=lat,
            lng=lng,
            maxDurationSeconds=None if seconds is None else session_seconds(seconds),
            waitTimeoutSeconds=wait_timeout_seconds,
            radiusMeters=radius_meters,
            quoteId=quote_id,
            workspaceId=workspace_id,
            instructions=instructions,
            metadata=metadata,
            consumerLeaseSeconds=consumer_lease_seconds,
            requireCoverage=require_coverage,
            maxHoldMicroUsdc=None if max_hold_micro_usdc is None else str(int(max_hold_micro_usdc)),
            payment=None if payment is None else dict(payment),
        )
        return await self._transport.change(Session, "POST", "/sessions", body, key=idempotency_key)

    async def terms(self, quote_id: str, *, seconds: int) -> SessionTerms:
        """Return what the payer signs for a session at a quoted rate, where the server holds the amount in escrow.

        Raises:
            NotFoundError: The server has no escrow (`session:escrow`), or the quote is unknown.
        """
        query = given(quoteId=quote_id, maxDurationSeconds=session_seconds(seconds))
        return await self._transport.get(SessionTerms, "/sessions/terms", query)

    async def statement(self, session_id: str) -> Statement:
        """Return the meter's signed reading. An operator who keeps the newest one is paid even if the service is gone.

        Raises:
            NotFoundError: The session has no open hold.
        """
        return await self._transport.get(Statement, f"/sessions/{session_segment(session_id)}/statement")

    async def get(self, session_id: str) -> Session:
        """Read a session."""
        return await self._transport.get(Session, f"/sessions/{session_segment(session_id)}")

    async def page(
        self,
        *,
        view: str | None = None,
        state: str | Iterable[str] = (),
        created_after: datetime | None = None,
        created_before: datetime | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> SessionPage:
        """Read one page of sessions, newest first.

        Args:
            view: `consumer`, `operator` or `open`; default: all sessions of the workspace.
            state: One state such as "ENDED", or several; default: all.
        """
        query = given(
            view=view,
            state=([state] if isinstance(state, str) else list(state)) or None,
            createdAfter=created_after,
            createdBefore=created_before,
            limit=limit,
            cursor=cursor,
        )
        return await self._transport.get(SessionPage, "/sessions", query)

    async def list(
        self,
        *,
        view: str | None = None,
        state: str | Iterable[str] = (),
        created_after: datetime | None = None,
        created_before: datetime | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[Session]:
        """Iterate over all sessions, newest first. Reads one page of `limit` at a time."""
        cursor: str | None = None
        states = [state] if isinstance(state, str) else list(state)
        while True:
            page = await self.page(
                view=view,
                state=states,
                created_after=created_after,
                created_before=created_before,
                limit=limit,
                cursor=cursor,
            )
            for session in page.items:
                yield session
            cursor = page.next_cursor
            if cursor is None:
                return

    async def dispatch(self, session_id: str, *, idempotency_key: str | None = None) -> AssignedSession:
        """Assign the best available operator.

        Raises:
            UnavailableError: No operator is available (`dispatch:noOperator`). This is not repeated.
        """
        return await self._transport.change(
            AssignedSession, "POST", f"/sessions/{session_segment(session_id)}/dispatch", key=idempotency_key
        )

    async def accept(self, session_id: str, operator_workspace_id: str) -> AssignedSession:
        """Accept an open session as its operator."""
        body = {"operatorWorkspaceId": operator_workspace_id}
        return await self._transport.change(
            AssignedSession, "POST", f"/sessions/{session_segment(session_id)}/accept", body
        )

    async def start(self, session_id: str) -> StartedSession:
        """Start an assigned session as its operator. The answer has the URL to publish to."""
        return await self._transport.change(StartedSession, "POST", f"/sessions/{session_segment(session_id)}/start")

    async def decline(self, session_id: str) -> Session:
        """Refuse an assigned session as its operator; it is open again for others.

        Later than 20 s after the assignment it counts as a no-show of the operator's wallet.
        """
        return await self._transport.change(Session, "POST", f"/sessions/{session_segment(session_id)}/decline")

    async def extension_terms(self, session_id: str, *, seconds: int) -> ExtensionTerms:
        """Return what the payer signs to extend a LIVE session, where the server holds its amount in escrow."""
        path = f"/sessions/{session_segment(session_id)}/extend/terms"
        return await self._transport.get(ExtensionTerms, path, given(seconds=session_seconds(seconds)))

    async def extend(
        self,
        session_id: str,
        seconds: int,
        *,
        max_hold_micro_usdc: int | None = None,
        payment: Payment | None = None,
        idempotency_key: str | None = None,
    ) -> Session:
        """Add seconds to the longest duration of a LIVE session; its hold grows by `rate x seconds`.

        Args:
            max_hold_micro_usdc: The largest hold of the whole session that the caller agrees to.
            payment: What the payer has signed, where the server holds the amount in escrow: `sign_payment(...)` of
                `extension_terms(...)`, or `sign_mandate(...)`. Left out, the workspace's mandate pays.
            idempotency_key: The same key extends once, also in another process.

        Raises:
            InvalidStateError: The session is not LIVE.
            ConflictError: The hold would be above `max_hold_micro_usdc` (`pricing:aboveMaximum`).
            UnavailableError: The chain has not confirmed it yet. A repeat with the same key goes on.
        """
        require_whole_micro_usdc("max_hold_micro_usdc", max_hold_micro_usdc)
        body = given(
            seconds=session_seconds(seconds),
            maxHoldMicroUsdc=None if max_hold_micro_usdc is None else str(int(max_hold_micro_usdc)),
            payment=payment,
        )
        return await self._transport.change(
            Session, "POST", f"/sessions/{session_segment(session_id)}/extend", body, key=idempotency_key
        )

    async def message(self, session_id: str, text: str, *, idempotency_key: str | None = None) -> Session:
        """Send a line of at most 200 characters, such as "turn left", to the operator of a LIVE session.

        The operator's screen or program shows it at once. It costs nothing, and is recorded with the session's events.

        Raises:
            InvalidStateError: The session is not LIVE, or has 200 messages (`session:messages`).
            RateLimitedError: More than 10 messages in a minute (`session:messages`). This is not repeated.
        """
        path = f"/sessions/{session_segment(session_id)}/messages"
        return await self._transport.change(Session, "POST", path, {"text": text}, key=idempotency_key)

    async def mark_messages_shown(self, session_id: str, number: int) -> Session:
        """Say, as the operator, that the messages up to `number` were shown. A repeat changes nothing.

        Raises:
            InvalidStateError: The session is not LIVE.
        """
        path = f"/sessions/{session_segment(session_id)}/messages/shown"
        return await self._transport.change(Session, "POST", path, {"number": number})

    async def end(self, session_id: str, *, idempotency_key: str | None = None) -> Session:
        """End a LIVE session, or an ASSIGNED one as its consumer."""
        return await self._transport.change(
            Session, "POST", f"/sessions/{session_segment(session_id)}/end", key=idempotency_key
        )

    async def cancel(self, session_id: str, *, idempotency_key: str | None = None) -> Session:
        """Cancel a session that has no operator yet."""
        return await self._transport.change(
            Session, "DELETE", f"/sessions/{session_segment(session_id)}", key=idempotency_key
        )

    async def cancel_all_assignments(self) -> CancelledAssignments:
        """Give back all assigned sessions that were not started, as their operator."""
        return await self._transport.change(CancelledAssignments, "POST", "/sessions/cancel-all-assignments")

    async def meter(self, session_id: str) -> Meter:
        """Read clean seconds and charge."""
        return await self._transport.get(Meter, f"/sessions/{session_segment(session_id)}/meter")

    async def meter_events(self, session_id: str) -> AsyncIterator[MeterEvent]:
        """Iterate over the recorded events, oldest first."""
        cursor: str | None = None
        while True:
            page = await self.meter_events_page(session_id, cursor=cursor)
            for event in page.items:
                yield event
            cursor = page.next_cursor
            if cursor is None:
                return

    async def meter_events_page(
        self, session_id: str, *, limit: int | None = None, cursor: str | None = None
    ) -> MeterEventPage:
        """Read one page of recorded events, oldest first."""
        query = given(limit=limit, cursor=cursor)
        return await self._transport.get(MeterEventPage, f"/sessions/{session_segment(session_id)}/meter/events", query)

    async def receipt(self, session_id: str) -> AsyncReceipt:
        """Read the receipt of a session that is over. `settled_receipt` also waits until it is paid."""
        data = await self._transport.data("GET", f"/sessions/{session_segment(session_id)}/receipt")
        return AsyncReceipt(data)

    async def settled_receipt(
        self, session_id: str, *, wait_s: float = 120.0, waits_for_funds: bool = False
    ) -> AsyncReceipt:
        """Wait until the payment of a session that is over is CONFIRMED, and read the receipt.

        A session without a charge has no payment to wait for: the server settles such sessions in a batch, up to ten
        minutes later.

        Args:
            wait_s: Longest time to wait.
            waits_for_funds: Whether to wait also while the payment is refused because the wallet does not cover it.

        Raises:
            ReceiptError: The session is not over, the payment was not confirmed within `wait_s`, the wallet does not
                cover it (`refused_for`), or the service has written it off.
        """
        session = await self.get(session_id)
        if not session.state.is_over:
            raise ReceiptError(
                f"Session {session.id} is {session.state}, and has its receipt when it is over. Leave its view, or "
                f"call sessions.end({session.id!r}); `sightline end {session.id}` on the command line."
            )
        deadline_s = monotonic_s() + wait_s
        while True:
            settlement = await self.settlement(session.id)
            if settlement.state == SettlementState.CONFIRMED or session.charged_micro_usdc == 0:
                return await self.receipt(session.id)
            if settlement.written_off:
                raise ReceiptError(
                    f"The charge of session {session.id} was written off by the service: it was not paid, and nothing "
                    "is owed."
                )
            if settlement.refused_for in LACKS and not waits_for_funds:
                lacks = str(settlement.refused_for)
                step = payment_steps(await self._wallet_of(session.consumer_workspace_id), lacks)
                raise ReceiptError(
                    f"The payment of session {session.id}, {session.charged_micro_usdc.usdc} USDC, was refused: the "
                    f"payer's {LACKS[lacks]} does not cover it. When it does, the session is paid by "
                    f"itself. Until then the payer gets no further session. {step}",
                    refused_for=lacks,
                )
            if monotonic_s() > deadline_s:
                raise ReceiptError(
                    f"The payment of session {session.id} is {settlement.state} after {wait_s:g} s. Ask for the "
                    "receipt again later; check that the wallet's balance, allowance and limits cover the charge."
                )
            await async_sleep(SETTLEMENT_POLL_S)

    async def _wallet_of(self, workspace_id: str) -> Wallet | None:
        """Read the wallet of the credential's workspace; None if that is another one, or may not be read."""
        try:
            found = await self._transport.get(Wallet, "/wallet")
        except ApiError:
            return None
        return found if found.workspace_id == workspace_id else None

    async def viewer_token(self, session_id: str) -> ViewerToken:
        """Get the WHEP URL of a LIVE session."""
        return await self._transport.get(ViewerToken, f"/sessions/{session_segment(session_id)}/viewer-token")

    async def share(self, session_id: str, *, expires_in_seconds: int = 3_600, label: str = "") -> MadeShare:
        """Make a link by which others see the view, read-only; for its consumer.

        The link's key is in this answer only; an answer that was lost is not repeated.

        Args:
            expires_in_seconds: 60..86,400, whether or not the view lasts as long.
            label: For the list of links; at most 80 characters.
        """
        body = {"expiresInSeconds": expires_in_seconds, "label": label}
        data = await self._transport.data("POST", f"/sessions/{session_segment(session_id)}/shares", body=body)
        return MadeShare.model_validate(data)

    async def shares(self, session_id: str) -> Sequence[Share]:
        """List the newest 100 links of a session, ended ones included."""
        return (await self._transport.get(ShareList, f"/sessions/{session_segment(session_id)}/shares")).items

    async def revoke_share(self, session_id: str, share_id: str) -> Share:
        """End a link now and disconnect the viewers that use it."""
        path = f"/sessions/{session_segment(session_id)}/shares/{segment(share_id)}"
        return await self._transport.change(Share, "DELETE", path)

    async def shared(self, session_id: str) -> SharedView:
        """Read what a share link shows; with the key of a link, or as a party of the session."""
        return await self._transport.get(SharedView, f"/sessions/{session_segment(session_id)}/shared")

    async def settlement(self, session_id: str) -> Settlement:
        """Read the payment."""
        return await self._transport.get(Settlement, f"/settlements/{session_segment(session_id)}")

    async def frame(
        self,
        session_id: str,
        *,
        width: int | None = None,
        quality: int | None = None,
        max_age_ms: int = FRAME_MAX_AGE_MS,
        after: int | None = None,
        wait_ms: int | None = None,
        signed: bool | None = None,
    ) -> Frame | None:
        """Fetch the newest frame, or the next one after the sequence `after`.

        Args:
            max_age_ms: An older frame is not returned, so that an agent does not take an old scene for the present one.
                From 250 to 10,000. Beyond 2,000 look at `frame.state`: `lost` means that no frame arrives.
            signed: Whether the picture carries signed content credentials (C2PA). They prove what the service
                delivered, and name the origin of each statement.

        Returns:
            The frame; None if no frame is newer than `after`, once `wait_ms` has passed.

        Raises:
            FrameNotAvailableError: No frame is decoded yet (`frame:notDecoded`), or the newest is too old.
        """
        query = given(width=width, quality=quality, maxAgeMs=max_age_ms, after=after, waitMs=wait_ms, signed=signed)
        return await fetch_frame(self._transport, session_id, query)

    def frames(
        self,
        session_id: str,
        *,
        fps: float | None = None,
        width: int | None = None,
        quality: int | None = None,
        signed: bool | None = None,
        proved: bool = False,
    ) -> AsyncFrames:
        """Iterate over new frames of a session that is LIVE, each once, until it is over; see `view.frames`.

        The loop ends whatever the reason is: `get` reads it.

        Raises:
            InvalidArgumentError: fps is not above 0, or width below 1. The call raises it, not the iteration.
        """

        async def fetch(after: int | None) -> Frame | None:
            return await fetch_next(self._transport, session_id, after, width=width, quality=quality, signed=signed)

        async def read() -> Session:
            return await self.get(session_id)

        return AsyncFrames(fetch, read, fps=fps, width=width, proved=proved)

    async def clip(self, session_id: str, seconds: int = 10, *, signed: bool | None = None) -> Clip:
        """Fetch the last seconds as a video file. It starts at the keyframe before them.

        Args:
            seconds: From 1 to 30. The clip is shorter if the server has kept less, or the publisher is new.
            signed: Whether the file carries signed content credentials (C2PA), which `sightline verify` checks.

        Raises:
            FrameNotAvailableError: No video of the present publisher has arrived (`clip:notReceived`), or the last one
                is more than 10 s old (`clip:stale`).
            InvalidInputError: The server keeps no video (`clip:off`), or cannot sign it (`clip:signed`).
        """
        query = given(seconds=seconds, signed=signed)
        response = await self._transport.send("GET", f"/sessions/{session_segment(session_id)}/clip", query=query)
        return Clip.parse(response.content, response.headers)

    def events(self, session_id: str) -> AsyncEvents:
        """Follow a session and its meter: `async with sl.sessions.events(id) as events`."""
        return AsyncEvents(self._transport, f"/sessions/{session_segment(session_id)}/events")


class AsyncWallets:
    """Balance of the workspace's wallet, and its movements on the chain."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def get(self) -> Wallet:
        """Read balance, allowance, limits and holds."""
        return await self._transport.get(Wallet, "/wallet")

    async def mandate(self) -> StoredMandate:
        """Read the mandate under which the workspace pays.

        Raises:
            NotFoundError: It has none, or the server has no escrow.
        """
        return await self._transport.get(StoredMandate, "/wallet/mandate")

    async def set_mandate(self, payment: Payment) -> StoredMandate:
        """Let the workspace pay within limits, so that its API keys need no wallet.

        Args:
            payment: From `sign_mandate(...)` of `sightline_client.escrow`, signed by the workspace's wallet.
        """
        body = {"mandate": payment["mandate"], "signature": payment["signature"]}
        return await self._transport.change(StoredMandate, "PUT", "/wallet/mandate", body)

    async def delete_mandate(self) -> StoredMandate:
        """Let the server forget the mandate. It stays valid on the contract until its end or its revocation."""
        return await self._transport.change(StoredMandate, "DELETE", "/wallet/mandate")

    async def permit(self, value: int) -> PermitOffer:
        """Read what the workspace's wallet signs to give the escrow contract an allowance without gas.

        Args:
            value: The allowance in micro-USDC; 0 takes it back.

        Raises:
            NotFoundError: The server has no escrow, or its token no permit.
        """
        return await self._transport.get(PermitOffer, "/wallet/permit", query={"value": str(value)})

    async def relay_permit(self, offer: PermitOffer, signature: str) -> RelayedPermit:
        """Have a signed permit sent to the token, and wait until it is in a block. A repeat changes nothing."""
        permit = {
            "owner": offer.owner, "spender": offer.spender, "value": str(int(offer.value)), "nonce": offer.nonce,
            "deadline": offer.deadline,
        }  # fmt: skip
        body = {"permit": permit, "signature": signature}
        return await self._transport.change(RelayedPermit, "POST", "/wallet/permit", body)

    async def approve(self, value: int, wallet: TypedDataSigner) -> RelayedPermit:
        """Give the escrow contract an allowance by a signature of the workspace's wallet, which needs no gas.

        Args:
            value: The allowance in micro-USDC; 0 takes it back.
            wallet: The workspace's wallet, such as `LocalWallet`.

        Raises:
            NotFoundError: The server has no escrow, or its token no permit: use `Chain.approve`.
            RateLimitedError: The service has paid enough gas for this wallet in 24 hours.
            InvalidArgumentError: The wallet is not that of the workspace.
        """
        require_whole_micro_usdc("value", value)
        require_wallet(wallet)
        offer = await self.permit(value)
        require_wallet_of(wallet, offer.owner)
        return await self.relay_permit(offer, wallet.sign_typed_data(offer.typed_data))

    async def events_page(
        self,
        *,
        kind: Iterable[str] = (),
        from_block: int | None = None,
        to_block: int | None = None,
        session_id: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> WalletEventPage:
        """Read one page of movements, newest first."""
        query = given(
            kind=list(kind) or None, fromBlock=from_block, toBlock=to_block, sessionId=session_id, limit=limit,
            cursor=cursor,
        )  # fmt: skip
        return await self._transport.get(WalletEventPage, "/wallet/events", query)

    async def events(
        self,
        *,
        kind: Iterable[str] = (),
        from_block: int | None = None,
        to_block: int | None = None,
        session_id: str | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[WalletEvent]:
        """Iterate over all movements, newest first. Reads one page of `limit` at a time."""
        cursor: str | None = None
        kinds = list(kind)
        while True:
            page = await self.events_page(
                kind=kinds, from_block=from_block, to_block=to_block, session_id=session_id, limit=limit, cursor=cursor
            )
            for event in page.items:
                yield event
            cursor = page.next_cursor
            if cursor is None:
                return
