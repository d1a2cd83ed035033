"""Statements by month over HTTP, as JSON, CSV and PDF, with the invoice of a closed month."""

import csv
import io
from dataclasses import dataclass
from typing import Any

import pytest
from pypdf import PdfReader

from sightline.domain.books.journal import EntryKind, JournalEntry, held_by, moved, settled_lines
from sightline.domain.books.statement import Month
from sightline.domain.settlement import SettlementPayload
from sightline.domain.units import DAY_MS, HOUR_MS, MicroUsdc
from sightline.domain.value import replace
from sightline.http.resources.money.statement_pdf import statement_pdf
from sightline.ports.ledger import BooksReading, FundsPolicy
from sightline.system.keccak import session_id_hash
from tests.contract.ledger.ledgers import a_block, an_application, apply
from tests.http.world import Party, World, data_of, error_of


@dataclass
class Market:
    """A consumer and an operator with one session of 1,000 in the month before this one; 250 were returned."""

    world: World
    consumer: Party
    operator: Party
    session_id: str
    month: Month

    async def read(self, party: Party, **headers: str) -> Any:
        return data_of(await party.key.get(f"{party.path}/statements/{self.month.name}", headers=headers))

    async def close(self) -> None:
        await apply(self.world.ledger, self.block(2), now_ms=self.month.end_ms + HOUR_MS)

    def block(self, number: int, *entries: JournalEntry) -> Any:
        books = BooksReading(first=number, through=number, entries=entries)
        return replace(an_application(a_block(number)), books=books)


@pytest.fixture
async def market(world: World) -> Market:
    consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
    month = Month.of(Month.of(world.clock.now_ms()).first_ms - DAY_MS)
    session_id, at_ms = world.ids.uuid(), month.first_ms + DAY_MS
    payer, payee = consumer.account.address, operator.account.address
    await world.ledger.take_hold(session_id, payer, 1_250, FundsPolicy.ADVISORY, now_ms=at_ms)  # type: ignore[attr-defined]  # both ledgers have it
    payload = SettlementPayload(
        session_id=session_id, from_address=payer, to_address=payee, to_amount=MicroUsdc(850), fee_amount=150,
        rate=MicroUsdc(100), chargeable_seconds=10, consumer_workspace_id=consumer.id,
        operator_workspace_id=operator.id, platform_fee_bps=1_500,
    )  # fmt: skip
    await world.ledger.compose(payload, now_ms=at_ms)
    settled = JournalEntry(
        kind=EntryKind.SETTLED, tx_hash="0xt", log_index=3, block_number=1, block_hash=a_block(1).block_hash,
        block_at_ms=at_ms, session_id_hash=session_id_hash(session_id),
        lines=settled_lines(
            payer=payer.lower(), payee=payee.lower(), to_amount=850, fee_amount=150, is_escrow=True
        ),
    )  # fmt: skip
    returned = replace(
        settled, kind=EntryKind.RETURNED, log_index=4, lines=moved(held_by(payer.lower()), "escrow", 250)
    )
    market = Market(world, consumer, operator, session_id, month)
    await apply(world.ledger, market.block(1, settled, returned), now_ms=at_ms)
    return market


async def test_a_consumer_sees_charges_and_what_returned_by_session(market: Market) -> None:
    found = await market.read(market.consumer)
    assert (found["workspaceId"], found["month"], found["environment"]) == (
        market.consumer.id, market.month.name, "TEST",
    )  # fmt: skip
    amounts = {
        "chargedMicroUsdc": "1000", "platformFeeMicroUsdc": "150", "returnedMicroUsdc": "250",
        "refundedMicroUsdc": "0",
    }  # fmt: skip
    [item] = found["consumer"]["items"]
    assert (item["sessionId"], item["txHash"]) == (market.session_id, "0xt")
    assert item.items() >= amounts.items()
    assert found["consumer"]["total"] == {"sessions": 1} | amounts
    assert found["operator"]["total"]["sessions"] == 0


async def test_an_operator_sees_what_was_earned_paid_credited_and_waits(market: Market) -> None:
    found = await market.read(market.operator)
    assert found["operator"]["total"] == {
        "sessions": 1, "earnedMicroUsdc": "850", "platformFeeMicroUsdc": "150", "creditedMicroUsdc": "0",
        "paidMicroUsdc": "850", "waitingMicroUsdc": "0",
    }  # fmt: skip
    assert found["consumer"]["items"] == []


async def test_a_closed_month_has_an_invoice_that_stays_and_only_for_who_was_charged(market: Market) -> None:
    before = await market.read(market.consumer)
    assert (before["isClosed"], before["consumer"]["invoice"]) == (False, None)
    await market.close()
    first = await market.read(market.consumer)
    invoice = first["consumer"]["invoice"]
    assert first["isClosed"]
    assert invoice["number"] == f"TEST-{market.month.year}-000001"
    assert (invoice["sessions"], invoice["chargedMicroUsdc"], invoice["refundedMicroUsdc"]) == (1, "1000", "0")
    market.world.clock.advance(60)
    assert (await market.read(market.consumer))["consumer"]["invoice"] == invoice
    assert (await market.read(market.operator))["consumer"]["invoice"] is None


async def test_the_sessions_come_as_csv_for_who_asks_for_it(market: Market) -> None:
    path = f"{market.consumer.path}/statements/{market.month.name}"
    answer = await market.consumer.key.get(f"{path}?format=csv")
    assert answer.headers["content-type"].startswith("text/csv")
    assert (
        answer.headers["content-disposition"] == f'attachment; filename="sightline-statement-{market.month.name}.csv"'
    )
    [row] = csv.DictReader(io.StringIO(answer.text))
    assert (row["side"], row["sessionId"], row["chargedMicroUsdc"], row["earnedMicroUsdc"]) == (
        "consumer", market.session_id, "1000", "",
    )  # fmt: skip
    assert (await market.consumer.key.get(path, headers={"accept": "text/csv"})).content == answer.content


async def test_the_statement_of_another_workspace_is_refused(market: Market) -> None:
    answer = await market.consumer.key.get(f"{market.operator.path}/statements/{market.month.name}")
    assert error_of(answer)[:2] == (403, "NOT_AUTHORIZED")


@pytest.mark.parametrize("month", ["2026-13", "2026-1", "2026", "x", "9999-12", "1969-12"])
async def test_a_month_that_cannot_be_is_refused(world: World, month: str) -> None:
    consumer = await world.party("CONSUMER")
    answer = await consumer.key.get(f"{consumer.path}/statements/{month}")
    assert error_of(answer) == (400, "INVALID_INPUT", "statements:month")


def printed(answer: Any) -> str:
    assert answer.headers["content-type"] == "application/pdf"
    return "\n".join(page.extract_text() for page in PdfReader(io.BytesIO(answer.content)).pages)


async def test_the_statement_comes_as_pdf_with_its_figures_for_who_asks_for_it(market: Market) -> None:
    path = f"{market.consumer.path}/statements/{market.month.name}"
    answer = await market.consumer.key.get(path, headers={"accept": "application/pdf"})
    assert (
        answer.headers["content-disposition"] == f'attachment; filename="sightline-statement-{market.month.name}.pdf"'
    )
    text = printed(answer)
    for line in (
        f"Statement {market.month.name}", "The month is not closed", "TEST: all money", market.consumer.id,
        market.consumer.account.address.lower(), "As consumer: 1 sessions", market.session_id,
        "Total 0.001000 0.000150 0.000250 0.000000",
    ):  # fmt: skip
        assert line.lower() in text.lower()
    assert "As operator" not in text
    assert "Total 0.000850 0.000150 0.000000" in printed(
        await market.operator.key.get(f"{market.operator.path}/statements/{market.month.name}?format=pdf")
    )


async def test_the_pdf_of_a_closed_month_is_headed_by_its_invoice_and_stays_the_same(market: Market) -> None:
    path = f"{market.consumer.path}/statements/{market.month.name}?format=pdf"
    await market.close()
    first = await market.consumer.key.get(path)
    assert f"Invoice TEST-{market.month.year}-000001" in printed(first)
    market.world.clock.advance(60)
    assert (await market.consumer.key.get(path)).content == first.content


def test_a_long_statement_prints_a_thousand_sessions_and_says_how_many_more_there_are() -> None:
    session = {
        "sessionId": "s", "settledAt": "2026-11-03T09:12:44.000Z", "txHash": "0x1", "chargedMicroUsdc": "1234567",
        "platformFeeMicroUsdc": "0", "returnedMicroUsdc": "0", "refundedMicroUsdc": "0",
    }  # fmt: skip
    nothing = {"sessions": 0, "paidMicroUsdc": "0", "waitingMicroUsdc": "0"}
    data = {
        "month": "2026-11", "isClosed": False,
        "consumer": {"items": [session] * 1_200, "total": session | {"sessions": 12_345}, "invoice": None},
        "operator": {"items": [], "total": nothing},
    }  # fmt: skip
    pages = PdfReader(io.BytesIO(statement_pdf(data, issuer=["Größe & Co (1)"], holder=["東京"]))).pages
    text = "\n".join(page.extract_text() for page in pages)
    assert text.count("2026-11-03 09:12") == 1_000
    assert "11345 more sessions" in text
    assert "Größe & Co (1)" in text
    assert f"Page {len(pages)} of {len(pages)}" in pages[-1].extract_text()
