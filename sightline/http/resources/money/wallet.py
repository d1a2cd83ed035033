"""Money as callers see it: settlements, the wallet, its ledger."""

from typing import Final, final

from sightline.domain.access import Operation
from sightline.domain.errors import RefusedError
from sightline.domain.refusal import Code, Refusal
from sightline.http.pipeline.call import Call, Reply
from sightline.http.pipeline.cursors import ledger_cursor, read_ledger_cursor
from sightline.http.pipeline.rate_limit import RateClass
from sightline.http.pipeline.routes import Route
from sightline.http.schemas.money import (
    Settlement,
    Wallet,
    WalletEventPage,
    WalletEventsQuery,
    settlement_json,
    wallet_event_json,
    wallet_json,
)
from sightline.http.services import Services
from sightline.ports.ledger import LedgerEventKind, LedgerQuery

NOT_TRACKED: Final = Refusal(Code.NOT_FOUND, "wallet:notTracked", "The workspace's wallet is not tracked")


@final
class MoneyResources:
    """/settlements/{sessionId}, /wallet, /wallet/events."""

    def __init__(self, services: Services) -> None:
        self._services = services

    @Route(
        "GET",
        "/api/v1/settlements/{sessionId}",
        "getSettlement",
        "money",
        "How far the settlement of a session is",
        description="NOT_READY before the end, PENDING once composed, CONFIRMED once mined.",
        operation=Operation.READ_SESSION,
        output=Settlement,
        errors=(Code.SESSION_NOT_FOUND,),
    )
    async def settlement(self, call: Call) -> Reply:
        """The settlement of a session the caller is party to."""
        session_id = call.params["sessionId"]
        await self._services.broker.reads.require_session_as_party(session_id, call.workspace_id)
        record = await self._services.ledger.settlement(session_id)
        return Reply(settlement_json(session_id, record))

    @Route(
        "GET",
        "/api/v1/wallet",
        "getWallet",
        "money",
        "Balance, allowance and holds of the caller's wallet",
        operation=Operation.READ_WALLET,
        output=Wallet,
        errors=(Code.NOT_FOUND,),
    )
    async def wallet(self, call: Call) -> Reply:
        """The caller's wallet."""
        wallet = await self._services.ledger.wallet(call.workspace_id)
        if wallet is None:
            raise RefusedError(NOT_TRACKED)
        return Reply(wallet_json(wallet))

    @Route(
        "GET",
        "/api/v1/wallet/events",
        "listWalletEvents",
        "money",
        "On-chain events of the wallet, newest first",
        operation=Operation.READ_WALLET,
        rate=RateClass.LIST,
        query=WalletEventsQuery,
        output=WalletEventPage,
    )
    async def events(self, call: Call) -> Reply:
        """A page of the ledger."""
        query: WalletEventsQuery = call.query
        rows = await self._services.ledger.ledger(
            call.workspace_id,
            LedgerQuery(
                limit=query.limit + 1,
                before_sequence=read_ledger_cursor(query.cursor) if query.cursor is not None else None,
                kinds=tuple(LedgerEventKind(kind) for kind in query.kind),
                from_block=query.from_block,
                to_block=query.to_block,
            ),
        )
        page = rows[: query.limit]
        following = ledger_cursor(page[-1].sequence) if len(rows) > query.limit else None
        return Reply({"items": [wallet_event_json(row) for row in page], "nextCursor": following})
