"""The command `sightline receipt`."""

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Final

import typer

from sightline_client.commands.access import client, one_line_errors
from sightline_client.commands.funds import refunds_json, refunds_of
from sightline_client.commands.options import AsJson, SessionId, Url, http_url
from sightline_client.commands.printing import payment_text, print_value, print_warning
from sightline_client.money import MicroUsdc
from sightline_client.wording import LACKS

# The command imports the client when it runs, so that `--help` is fast.
if TYPE_CHECKING:
    from sightline_client import Receipt, Sightline
    from sightline_client.verification import TrustedDeployment

PANEL: Final = "Watch"
"""Heading of `sightline --help`."""
TITLES: Final = {
    "hashChain": "the events are complete and in order",
    "cleanSeconds": "the seconds follow from the events",
    "charge": "the charge is seconds x rate",
    "fee": "the fee is its share of the charge",
    "settled": "the chain has the payment",
}
SKIPPED: Final = {
    "notSettled": "nothing is charged, or the payment is not confirmed yet",
    "deploymentMissing": "no contract to trust",
    "transactionMissing": "the node does not have the transaction",
}

WAIT_S: Final = 120.0

app = typer.Typer()


def _deployment(text: str | None) -> "TrustedDeployment | None":
    from sightline_client.keccak import checked_address
    from sightline_client.verification import TrustedDeployment

    if text is None:
        return None
    if re.fullmatch(r"\d+(,0x[0-9a-fA-F]{40}){2}", text, re.ASCII) is None:
        raise typer.BadParameter("Write CHAIN_ID,SETTLEMENT_ADDRESS,USDC_ADDRESS.", param_hint="--deployment")
    chain_id, *addresses = text.split(",")
    for address in addresses:
        try:
            checked_address(address)
        except ValueError as error:
            raise typer.BadParameter(f"{address}: {error}", param_hint="--deployment") from error
    return TrustedDeployment(int(chain_id), *addresses)


@app.command(rich_help_panel=PANEL)
def receipt(
    session_id: SessionId,
    wait: Annotated[
        float | None,
        typer.Option(min=0, help="Seconds to wait until the payment is confirmed; default: 120, 0 if it is refused."),
    ] = None,
    deployment: Annotated[
        str | None,
        typer.Option(
            metavar="CHAIN_ID,SETTLEMENT,USDC",
            help="Chain and contracts that must have paid; default: what the server says of itself.",
        ),
    ] = None,
    rpc_url: Annotated[
        str | None, typer.Option(callback=http_url, help="Node of the chain; default: that of the server.")
    ] = None,
    api: Url = None,
    as_json: AsJson = False,
) -> None:
    """Compute a session's seconds, charge and fee again, look its payment up on the chain, and print them.

    Exit code 1 if a value is wrong, or the node does not answer. A check that was not made is named.
    """
    from sightline_client.errors import ChainError
    from sightline_client.verification import TrustedDeployment

    trusted = _deployment(deployment)
    with one_line_errors(as_json=as_json, session_id=session_id), client(api, needs_key=True) as sl:
        found, config = _settled(sl, session_id, wait, as_json=as_json), sl.config()
        expected: TrustedDeployment = trusted or config.deployment
        unanswered: ChainError | None = None
        try:
            result = found.verify(deployment=expected, rpc=rpc_url or config.rpc_url)
        except ChainError as error:
            unanswered, result = error, found.verify(deployment=expected)
        refunds = refunds_of(sl, session_id, found.session.consumer_workspace_id, config)
    payload = found.settlement.payload
    fee = MicroUsdc(0) if payload is None else payload.fee_amount
    skipped = {str(check): str(reason) for check, reason in result.skipped.items()}
    said: dict[str, object] = {
        "id": found.session.id,
        "cleanSeconds": found.seconds,
        "chargedMicroUsdc": str(found.charged),
        "platformFeeMicroUsdc": str(fee),
        "settlementTxHash": found.tx_hash,
        "checks": {name: skipped.get(name, "passed") for name in TITLES},
    } | refunds_json(refunds)
    paid = payment_text(found, is_escrow=config.is_escrow)
    lines = [f"{found.seconds} s, {found.charged.usdc} USDC, {paid}"]
    if found.charged:
        lines.append(f"of which {fee.usdc} USDC are the platform's fee")
    lines += [f"refunded {each.amount_micro_usdc.usdc} USDC in {each.tx_hash}" for each in refunds or ()]
    lines += _check_lines(skipped)
    print_value(said, as_json, "\n".join(lines))
    if unanswered is not None:
        with one_line_errors(as_json=as_json):
            raise unanswered


def _settled(sl: "Sightline", session_id: str, wait_s: float | None, *, as_json: bool) -> "Receipt":
    """Wait for the payment. Says at once if the wallet does not cover it; waits for that too if a time is given."""
    from sightline_client.errors import ReceiptError

    longest_s = WAIT_S if wait_s is None else wait_s
    settlement = sl.sessions.settlement(session_id)
    if settlement.written_off:
        print_warning("The charge was written off by the service: it was not paid, and nothing is owed.", as_json)
        return sl.sessions.receipt(session_id)
    paid = settlement.payload
    if longest_s and settlement.state == "PENDING" and settlement.refused_for not in LACKS and paid and paid.to_amount:
        print_warning(f"The payment is not confirmed yet. Waiting for it, at most {longest_s:g} s.", as_json)
    try:
        return sl.sessions.settled_receipt(session_id, wait_s=longest_s)
    except ReceiptError as error:
        if error.refused_for is None or not wait_s:
            raise
        print_warning(f"{error} Waiting for that, at most {wait_s:g} s.", as_json)
    return sl.sessions.settled_receipt(session_id, wait_s=wait_s, waits_for_funds=True)


def _check_lines(skipped: Mapping[str, str]) -> Iterator[str]:
    for name, title in TITLES.items():
        why = skipped.get(name)
        yield f"  checked      {title}" if why is None else f"  not checked  {title}: {SKIPPED[why]}"
