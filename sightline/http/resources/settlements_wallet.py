"""Money as callers see it: settlements, the wallet, its ledger."""

from typing import Final, final

from sightline.actors.types import Answer
from sightline.domain.access import Operation
from sightline.domain.addresses import shown_address
from sightline.domain.errors import RefusedError
from sightline.domain.refusal import Code, Refusal
from sightline.domain.views import View, iso, iso_or_none
from sightline.http.deps import Deps
from sightline.http.pipeline.call import Call
from sightline.http.pipeline.cursors import ledger_cursor, read_ledger_cursor
from sightline.http.pipeline.rate_limit import RateClass
from sightline.http.pipeline.routes import Route
from sightline.http.schemas.money import Settlement, Wallet, WalletEventPage, WalletEventsQuery
from sightline.ports.ledger import EventKind, LedgerQuery, LedgerRow, SettlementRecord, SettlementState, WalletView

NOT_TRACKED: Final = Refusal(Code.NOT_FOUND, "wallet:notTracked", "The workspace's wallet is not tracked")


def settlement_view(session_id: str, record: SettlementRecord | None) -> View:
    """How far it is. What holds a settlement up is the operator of the server's business: it shows as PENDING."""
    if record is None:
        return {
            "sessionId": session_id,
            "state": "NOT_READY",
            "payload": None,
            "txHash": None,
            "confirmedAt": None,
        }
    payload = record.payload
    is_confirmed = record.state is SettlementState.CONFIRMED
    return {
        "sessionId": session_id,
        "state": "CONFIRMED" if is_confirmed else "PENDING",
        "payload": {
            "sessionIdHash": record.session_id_hash,
            "from": shown_address(payload.from_address),
            "to": shown_address(payload.to_address),
            "toAmount": str(payload.to_amount),
            "feeAmount": str(payload.fee_amount),
            "ratePerSecond": str(payload.rate),
            "chargeableSeconds": payload.chargeable_seconds,
            "consumerWorkspaceId": payload.consumer_workspace_id,
            "operatorWorkspaceId": payload.operator_workspace_id,
            "platformFeeBps": payload.platform_fee_bps,
        },
        "txHash": record.tx_hash,
        "confirmedAt": iso_or_none(record.confirmed_at_ms if is_confirmed else None),
    }


def wallet_view(wallet: WalletView) -> View:
    """The cache of the wallet."""
    return {
        "workspaceId": wallet.workspace_id,
        "walletAddress": shown_address(wallet.address),
        "trackedBalance": str(wallet.balance_micro),
        "trackedAllowance": str(wallet.allowance_micro),
        "heldMicroUsdc": str(wallet.held_micro),
        "availableMicroUsdc": str(wallet.available_micro),
        "lastSyncBlock": str(wallet.last_sync_block),
        "updatedAt": iso(wallet.updated_at_ms),
    }


def ledger_row_view(row: LedgerRow) -> View:
    """One row of the ledger."""
    return {
        "id": str(row.sequence),
        "workspaceId": row.workspace_id,
        "kind": row.kind.value,
        "txHash": row.tx_hash,
        "logIndex": row.log_index,
        "blockNumber": str(row.block_number),
        "blockHash": row.block_hash,
        "fromAddress": shown_address(row.from_address),
        "toAddress": shown_address(row.to_address),
        "amountMicroUsdc": str(row.amount_micro),
        "sessionId": row.session_id,
        "confirmations": row.confirmations,
        "confirmedAt": iso_or_none(row.confirmed_at_ms),
        "removed": row.removed,
        "createdAt": iso(row.created_at_ms),
    }


@final
class MoneyResources:
    """/settlements/{sessionId}, /wallet, /wallet/events."""

    def __init__(self, deps: Deps) -> None:
        self._deps = deps

    def routes(self) -> tuple[Route, ...]:
        """The calls of this resource."""
        return (
            Route(
                method="GET",
                path="/api/v1/settlements/{sessionId}",
                operation_id="getSettlement",
                tag="money",
                summary="How far the settlement of a session is",
                description="NOT_READY before the end, PENDING once composed, CONFIRMED once mined.",
                handler=self.settlement,
                operation=Operation.READ_SESSION,
                output=Settlement,
                errors=(Code.SESSION_NOT_FOUND,),
            ),
            Route(
                method="GET",
                path="/api/v1/wallet",
                operation_id="getWallet",
                tag="money",
                summary="Balance, allowance and holds of the caller's wallet",
                handler=self.wallet,
                operation=Operation.READ_WALLET,
                output=Wallet,
                errors=(Code.NOT_FOUND,),
            ),
            Route(
                method="GET",
                path="/api/v1/wallet/events",
                operation_id="listWalletEvents",
                tag="money",
                summary="On-chain events of the wallet, newest first",
                handler=self.events,
                operation=Operation.READ_WALLET,
                rate=RateClass.LIST,
                query=WalletEventsQuery,
                output=WalletEventPage,
            ),
        )

    async def settlement(self, call: Call) -> Answer:
        """The settlement of a session the caller is party to."""
        session_id = call.params["sessionId"]
        await self._deps.broker.reads.require_session_as_party(session_id, call.workspace_id)
        record = await self._deps.ledger.settlement(session_id)
        return Answer(settlement_view(session_id, record), self._deps.clock.now_ms())

    async def wallet(self, call: Call) -> Answer:
        """The caller's wallet."""
        wallet = await self._deps.ledger.wallet(call.workspace_id)
        if wallet is None:
            raise RefusedError(NOT_TRACKED)
        return Answer(wallet_view(wallet), self._deps.clock.now_ms())

    async def events(self, call: Call) -> Answer:
        """A page of the ledger."""
        query: WalletEventsQuery = call.query
        rows = await self._deps.ledger.ledger(
            call.workspace_id,
            LedgerQuery(
                limit=query.limit + 1,
                before_sequence=read_ledger_cursor(query.cursor) if query.cursor is not None else None,
                kinds=tuple(EventKind(kind) for kind in query.kind),
                from_block=query.from_block,
                to_block=query.to_block,
            ),
        )
        page = rows[: query.limit]
        following = ledger_cursor(page[-1].sequence) if len(rows) > query.limit else None
        data = {"items": [ledger_row_view(row) for row in page], "nextCursor": following}
        return Answer(data, self._deps.clock.now_ms())
