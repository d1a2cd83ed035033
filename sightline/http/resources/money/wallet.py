"""Money as callers see it: settlements, the wallet, its ledger."""

from typing import Final, final

from sightline.domain.access import ApiKeyPrincipal, Operation
from sightline.domain.addresses import shown_address
from sightline.domain.errors import RefusedError
from sightline.domain.refusal import Code, Refusal
from sightline.domain.units import MicroUsdc
from sightline.http.budgets import RateClass
from sightline.http.cursors import ledger_cursor, read_number
from sightline.http.pipeline.call import Call, Reply
from sightline.http.pipeline.idempotency import Idempotency
from sightline.http.pipeline.routes import Route
from sightline.http.schemas.money import (
    FaucetBody,
    FaucetPayment,
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

NO_FAUCET: Final = Refusal(Code.NOT_FOUND, "faucet:notOffered", "This server gives no test money")
NOT_TRACKED: Final = Refusal(Code.NOT_FOUND, "wallet:notTracked", "The workspace's wallet is not tracked")


@final
class MoneyResources:
    """/settlements/{sessionId}, /wallet, /wallet/events, /wallet/faucet."""

    def __init__(self, services: Services, idempotency: Idempotency) -> None:
        self._services = services
        self._idempotency = idempotency

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
        "Balance, allowance, limits and holds of the caller's wallet",
        operation=Operation.READ_WALLET,
        output=Wallet,
        errors=(Code.NOT_FOUND,),
    )
    async def wallet(self, call: Call) -> Reply:
        """The caller's wallet."""
        wallet = await self._services.ledger.wallet(call.workspace_id)
        if wallet is None:
            raise RefusedError(NOT_TRACKED)
        now_ms, principal = self._services.clock.now_ms(), call.principal
        limits = principal.limits if isinstance(principal, ApiKeyPrincipal) else None
        spent = 0
        if isinstance(principal, ApiKeyPrincipal) and limits is not None and limits.per_day is not None:
            spent = await self._services.ledger.spent_by_key(principal.key_id, now_ms=now_ms)
        return Reply(wallet_json(wallet, now_ms, key_limits=limits, spent_by_key=spent))

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
                before_sequence=read_number(query.cursor) if query.cursor is not None else None,
                kinds=tuple(LedgerEventKind(kind) for kind in query.kind),
                from_block=query.from_block,
                to_block=query.to_block,
                session_id=query.session_id,
            ),
        )
        page = rows[: query.limit]
        following = ledger_cursor(page[-1].sequence) if len(rows) > query.limit else None
        return Reply({"items": [wallet_event_json(row) for row in page], "nextCursor": following})

    @Route(
        "POST",
        "/api/v1/wallet/faucet",
        "useFaucet",
        "money",
        "Get test money from the embedded chain",
        description="Pays test USDC, and the native coin that an approval costs, to the workspace's wallet. 404 "
        "`faucet:notOffered` on an external chain and where the setting turns it off; 409 `faucet:dailyMax` with "
        "`remainingMicroUsdc` beyond the maximum of a UTC day.",
        operation=Operation.USE_FAUCET,
        rate=RateClass.CREATE,
        body=FaucetBody,
        body_required=False,
        output=FaucetPayment,
        errors=(Code.NOT_FOUND, Code.CONFLICT),
    )
    async def use_faucet(self, call: Call) -> Reply:
        """Pay test money."""
        faucet, daily_max = self._services.faucet, self._services.options.faucet_daily_micro
        if faucet is None or not daily_max:
            raise RefusedError(NO_FAUCET)
        body: FaucetBody = call.body
        amount = int(body.amount_micro_usdc)

        async def pay() -> Reply:
            workspace = (await self._services.broker.reads.read_workspace(call.workspace_id)).value
            ledger, now_ms = self._services.ledger, self._services.clock.now_ms()
            address = workspace.wallet_address
            left = await ledger.take_from_faucet(address, amount, daily_max=daily_max, now_ms=now_ms)
            if left is None:
                left = await ledger.left_of_faucet(address, daily_max=daily_max, now_ms=now_ms)
                message = f"The wallet may get {left} micro-USDC more on this UTC day"
                raise RefusedError(Refusal(Code.CONFLICT, "faucet:dailyMax", message, left_micro=MicroUsdc(left)))
            payment = await faucet(address, amount)
            self._services.wake_watcher()
            return Reply(
                {
                    "walletAddress": shown_address(payment.address),
                    "amountMicroUsdc": str(payment.amount_micro),
                    "txHash": payment.tx_hash,
                    "remainingMicroUsdc": str(left),
                }
            )

        return await self._idempotency.recorded(call.caller().idempotency, pay)
