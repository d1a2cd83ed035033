"""A statement as PDF (ISO 32000-1), with the fonts that every reader has: Latin letters only."""

import io
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import pydyf

from sightline.domain.units import usdc_decimals

SESSIONS_MAX: Final = 1_000
"""Sessions of each side that are printed; CSV has more."""

WIDTH: Final = 595
HEIGHT: Final = 842
"""A4 in points."""
MARGIN: Final = 48
PLAIN: Final = "F1"
BOLD: Final = "F2"
FONTS: Final = {PLAIN: "Helvetica", BOLD: "Helvetica-Bold"}
BLACK: Final = (0.1, 0.1, 0.12)
GREY: Final = (0.4, 0.4, 0.45)
RED: Final = (0.7, 0.1, 0.1)
DIGIT: Final = 0.556
POINT: Final = 0.278
"""Widths of a digit, and of a point or comma, as a share of the font size; the same in Helvetica and Helvetica-Bold."""

Colour: TypeAlias = tuple[float, float, float]


class _Column(NamedTuple):
    """An amount: its title, its name in the data, and the right edge of its column in points."""

    title: str
    name: str
    right: float


CONSUMER: Final = (
    _Column("Charged", "chargedMicroUsdc", 350),
    _Column("Fee in it", "platformFeeMicroUsdc", 415),
    _Column("Returned", "returnedMicroUsdc", 482),
    _Column("Refunded", "refundedMicroUsdc", 547),
)
OPERATOR: Final = (
    _Column("Earned", "earnedMicroUsdc", 350),
    _Column("Fee taken", "platformFeeMicroUsdc", 415),
    _Column("Credited", "creditedMicroUsdc", 482),
)


class _Pages:
    """Pages that are filled from the top."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._streams: list[pydyf.Stream] = []
        self.y = 0.0
        self.new_page()

    def new_page(self) -> None:
        self._streams.append(pydyf.Stream(compress=True))
        self.y = HEIGHT - MARGIN

    def require(self, height: float) -> bool:
        """Begin a page if less than this is left; returns whether one was begun."""
        is_full = self.y - height < MARGIN
        if is_full:
            self.new_page()
        return is_full

    def text(self, x: float, text: str, *, size: float = 9, font: str = PLAIN, colour: Colour = BLACK) -> None:
        _write(self._streams[-1], x, self.y, text, size=size, font=font, colour=colour)

    def amount(self, right: float, text: str, *, font: str = PLAIN) -> None:
        """Write digits, points and commas up to a right edge."""
        width = 9 * sum(DIGIT if letter.isdigit() else POINT for letter in text)
        self.text(right - width, text, font=font)

    def line(self) -> None:
        stream = self._streams[-1]
        stream.set_color_rgb(*GREY, stroke=True)
        stream.set_line_width(0.5)
        stream.move_to(MARGIN, self.y + 11)
        stream.line_to(WIDTH - MARGIN, self.y + 11)
        stream.stroke()

    def written(self) -> bytes:
        pdf = pydyf.PDF()
        pdf.info["Title"] = pydyf.String(self._title)
        pdf.info["Creator"] = pydyf.String("Sightline")
        fonts = pydyf.Dictionary()
        for key, name in FONTS.items():
            kind = {"Type": "/Font", "Subtype": "/Type1", "BaseFont": f"/{name}", "Encoding": "/WinAnsiEncoding"}
            font = pydyf.Dictionary(kind)
            pdf.add_object(font)
            fonts[key] = font.reference
        for number, stream in enumerate(self._streams, 1):
            foot, count = MARGIN / 2, f"Page {number} of {len(self._streams)}"
            _write(stream, MARGIN, foot, f"{self._title}  -  TEST, no real money", size=7, font=PLAIN, colour=GREY)
            _write(stream, WIDTH - MARGIN - 50, foot, count, size=7, font=PLAIN, colour=GREY)
            pdf.add_object(stream)
            page = {
                "Type": "/Page",
                "Parent": pdf.pages.reference,
                "MediaBox": pydyf.Array([0, 0, WIDTH, HEIGHT]),
                "Contents": stream.reference,
                "Resources": pydyf.Dictionary({"Font": fonts}),
            }
            pdf.add_page(pydyf.Dictionary(page))
        output = io.BytesIO()
        pdf.write(output)
        return output.getvalue()


def _write(stream: pydyf.Stream, x: float, y: float, text: str, *, size: float, font: str, colour: Colour) -> None:
    stream.begin_text()
    stream.set_color_rgb(*colour)
    stream.set_font_size(font, size)
    stream.set_text_matrix(1, 0, 0, 1, x, y)
    # As hexadecimal digits nothing needs to be escaped. What WinAnsiEncoding lacks becomes a question mark.
    stream.stream.append(b"<" + text.encode("cp1252", "replace").hex().encode() + b"> Tj")
    stream.end_text()


def statement_pdf(data: Mapping[str, Any], *, issuer: Sequence[str], holder: Sequence[str]) -> bytes:
    """Print a `MonthStatement`, headed by its invoice if it has one.

    Args:
        issuer: Lines of who issues it.
        holder: Lines of whose it is.
    """
    month, invoice = data["month"], data["consumer"]["invoice"]
    title = f"Statement {month}" if invoice is None else f"Invoice {invoice['number']}, statement {month}"
    pages = _Pages(title)
    pages.text(MARGIN, issuer[0], size=14, font=BOLD)
    for line in issuer[1:]:
        pages.y -= 12
        pages.text(MARGIN, line, colour=GREY)
    pages.y -= 36
    pages.text(MARGIN, title, size=16, font=BOLD)
    pages.y -= 16
    issued = "" if invoice is None else f"Issued {invoice['issuedAt'][:10]}. "
    closed = "The month is closed." if data["isClosed"] else "The month is not closed: figures may be added."
    pages.text(MARGIN, f"{issued}{closed} Times in UTC, amounts in USDC.", colour=GREY)
    pages.y -= 14
    pages.text(MARGIN, "TEST: all money of this service is test money.", font=BOLD, colour=RED)
    pages.y -= 12
    for line in holder:
        pages.y -= 12
        pages.text(MARGIN, line)
    consumer, operator = data["consumer"], data["operator"]
    if consumer["items"] or not operator["items"]:
        _side(pages, "As consumer", CONSUMER, consumer, ())
    if operator["items"] or operator["total"]["waitingMicroUsdc"] != "0":
        paid, waiting = (usdc_decimals(int(operator["total"][name])) for name in ("paidMicroUsdc", "waitingMicroUsdc"))
        notes = (f"Paid to the wallet: {paid}", f"Ended before the end of the month and settled later: {waiting}")
        _side(pages, "As operator", OPERATOR, operator, notes)
    return pages.written()


def _side(pages: _Pages, title: str, columns: Sequence[_Column], part: Mapping[str, Any], notes: Sequence[str]) -> None:
    total = part["total"]
    pages.require(110)
    pages.y -= 34
    pages.text(MARGIN, f"{title}: {total['sessions']} sessions", size=12, font=BOLD)
    _head(pages, columns)
    _row(pages, "Total", columns, total, font=BOLD)
    for note in notes:
        pages.y -= 12
        pages.text(MARGIN, note, colour=GREY)
    pages.y -= 6
    items = part["items"][:SESSIONS_MAX]
    for item in items:
        if pages.require(26):
            _head(pages, columns)
        _row(pages, item["settledAt"][:16].replace("T", " "), columns, item)
        pages.y -= 9
        pages.text(MARGIN, f"{item['sessionId']}  {item['txHash']}", size=6.5, colour=GREY)
    left = total["sessions"] - len(items)
    if left > 0:
        pages.require(20)
        pages.y -= 16
        pages.text(MARGIN, f"{left} more sessions are in the totals, and in the CSV form.", colour=GREY)


def _head(pages: _Pages, columns: Sequence[_Column]) -> None:
    pages.y -= 22
    pages.text(MARGIN, "Settled", colour=GREY)
    for column in columns:
        pages.text(column.right - 40, column.title, colour=GREY)
    pages.y -= 14
    pages.line()
    pages.y += 8


def _row(
    pages: _Pages, name: str, columns: Sequence[_Column], amounts: Mapping[str, str], *, font: str = PLAIN
) -> None:
    pages.y -= 14
    pages.text(MARGIN, name, font=font)
    for column in columns:
        pages.amount(column.right, usdc_decimals(int(amounts[column.name])), font=font)
