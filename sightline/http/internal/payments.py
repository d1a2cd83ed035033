"""What `sightline reconcile` shows and adopts: payments that the database does not know, and how the books differ."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, final

from sightline.actors.payment_hold import PaymentHold
from sightline.domain.books.differences import BooksCheck, Difference
from sightline.domain.errors import ChainUnavailableError, RefusedError
from sightline.domain.refusal import Code, Refusal
from sightline.domain.settlement import ChainPayment, UnknownPayments
from sightline.http.audit import Act, Audit
from sightline.http.budgets import RateClass
from sightline.http.internal.admin import TAG, actor_of
from sightline.http.pipeline.call import Call, Reply
from sightline.http.pipeline.routes import Route
from sightline.http.schemas.admin import AdoptBody, JournalQuery
from sightline.http.schemas.base import iso
from sightline.ports.administration import AuditAction
from sightline.ports.ledger import Journal, PaymentJournal, StoredEntry

LISTED_MAX: Final = 1_000
_PATH: Final = "/internal/admin/unknown-payments"


@final
class PaymentResources:
    """/internal/admin: unknown-payments, reconciliation and journal."""

    def __init__(
        self,
        journal: PaymentJournal,
        hold: PaymentHold,
        audit: Audit,
        books: Journal,
        compare: Callable[[], Awaitable[tuple[BooksCheck, Sequence[Difference]]]],
    ) -> None:
        """Args: compare: compares the books with the chain; returns the first differences with the result."""
        self._compare = compare
        self._books = books
        self._journal = journal
        self._hold = hold
        self._audit = audit

    @Route(
        "GET",
        _PATH,
        "adminListUnknownPayments",
        TAG,
        "Payments on the chain that the database does not know, and the sums of the books",
        rate=RateClass.NONE,
    )
    async def unknown(self, _call: Call) -> Reply:
        """By block. Before a person adopts them, no new session begins."""
        found = await self._journal.unknown_payments(limit=LISTED_MAX)
        sums = await self._journal.sums()
        return Reply(
            {
                "items": [_payment_json(payment) for payment in found],
                "unknown": _sum_json(await self._journal.unknown()),
                "settled": _sum_json(sums.settled),
                "adopted": _sum_json(sums.adopted),
            }
        )

    @Route(
        "POST",
        f"{_PATH}/adopt",
        "adminAdoptPayments",
        TAG,
        "Adopt payments into the append-only journal; new sessions begin again when none is left",
        body=AdoptBody,
        rate=RateClass.NONE,
        errors=(Code.CONFLICT,),
    )
    async def adopt(self, call: Call) -> Reply:
        """Adopt exactly what the person has seen."""
        body: AdoptBody = call.body
        actor = actor_of(call)
        adopted = await self._audit.record(
            Act(actor, AuditAction.PAYMENTS_ADOPT, f"payments through block {body.through_block}", body.stated),
            lambda: self._adopt(body, actor),
        )
        await self._hold.load(self._journal.unknown)
        return Reply({"adopted": _sum_json(adopted), "unknown": _sum_json(self._hold.unknown)})

    @Route(
        "POST",
        "/internal/admin/reconciliation",
        "adminReconcile",
        TAG,
        "Compare the books with the chain now",
        rate=RateClass.NONE,
        errors=(Code.UNAVAILABLE,),
    )
    async def reconcile(self, _call: Call) -> Reply:
        """Recompute everything that is final from the chain."""
        try:
            check, differences = await self._compare()
        except ChainUnavailableError as error:
            raise RefusedError(Refusal(Code.UNAVAILABLE, "chain:unavailable", str(error))) from error
        return Reply(
            {
                "comparedAt": iso(check.at_ms),
                "throughBlock": check.through_block,
                "events": check.entries,
                "differences": check.differences,
                "items": [_difference_json(each) for each in differences],
            }
        )

    @Route(
        "GET",
        "/internal/admin/journal",
        "adminListJournal",
        TAG,
        "Entries of the journal, oldest first",
        query=JournalQuery,
        rate=RateClass.NONE,
    )
    async def journal(self, call: Call) -> Reply:
        """A page of entries after an id."""
        query: JournalQuery = call.query
        entries = await self._books.entries(after=query.after, limit=LISTED_MAX)
        return Reply({"items": [_entry_json(each) for each in entries]})

    async def _adopt(self, body: AdoptBody, actor: str) -> UnknownPayments:
        adopted = await self._journal.adopt(
            through_block=body.through_block,
            count=body.count,
            adopted_by=actor,
            reason=body.stated,
            now_ms=self._audit.clock.now_ms(),
        )
        if adopted is None:
            message = f"There are not {body.count} payments any more. Nothing was adopted; list them again"
            raise RefusedError(Refusal(Code.CONFLICT, "payments:changed", message))
        return adopted


def _sum_json(payments: UnknownPayments) -> dict[str, object]:
    return {"payments": payments.count, "amountMicroUsdc": str(payments.amount_micro)}


def _payment_json(payment: ChainPayment) -> dict[str, object]:
    return {
        "sessionIdHash": payment.session_id_hash,
        "blockNumber": payment.block_number,
        "txHash": payment.tx_hash,
        "from": payment.payer,
        "to": payment.payee,
        "toAmount": str(payment.to_amount),
        "feeAmount": str(payment.fee_amount),
        "ratePerSecond": str(payment.rate),
        "chargeableSeconds": str(payment.seconds),
    }


def _difference_json(difference: Difference) -> dict[str, object]:
    return {
        "kind": difference.kind.value,
        "subject": difference.subject,
        "chain": difference.chain,
        "books": difference.books,
        "advice": difference.advice,
    }


def _entry_json(stored: StoredEntry) -> dict[str, object]:
    entry = stored.entry
    return {
        "id": stored.id,
        "kind": entry.kind.value,
        "blockNumber": entry.block_number,
        "blockHash": entry.block_hash,
        "blockAt": iso(entry.block_at_ms),
        "txHash": entry.tx_hash,
        "logIndex": entry.log_index,
        "sessionId": entry.session_id,
        "sessionIdHash": entry.session_id_hash,
        "reverses": stored.reverses,
        "recordedAt": iso(stored.recorded_at_ms),
        "lines": [
            {"account": line.account, "currency": line.currency.value, "amount": str(line.amount)}
            for line in entry.lines
        ],
    }
