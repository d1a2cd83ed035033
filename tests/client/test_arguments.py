"""Arguments that cannot work are refused at once, and no message shows a secret."""

import json
import math
import re
import socket
import traceback
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest
from eth_account import Account
from typer.testing import CliRunner

from sightline.domain.access import Scope
from sightline_client import (
    NO_RETRY,
    ApiError,
    AsyncChain,
    AsyncSightline,
    ClientClosedError,
    EndNotConfirmedError,
    InsufficientCreditError,
    InvalidArgumentError,
    InvalidInputError,
    InvalidStateError,
    MaxChargeError,
    NoOperatorError,
    NotAuthenticatedError,
    NotAuthorizedError,
    NotReachedError,
    OutcomeUnknownError,
    RateLimitedError,
    RetryPolicy,
    Sightline,
    SightlineError,
    ViewNotEnteredError,
    usdc,
)
from sightline_client.commands import application
from sightline_client.commands.access import KEY_SCOPES, SCOPES, in_words_of_commands
from sightline_client.escrow import sign_payment
from sightline_client.models import ExtensionTerms
from sightline_client.money import MicroUsdc
from sightline_client.wallet import LocalWallet
from tests.http.world import open_world

KEY = "svc_test_000000_" + "A" * 43
SESSION_ID = "3fe8a2b0-1c1f-4a6e-9d61-0c9a8d7e6f50"


@pytest.fixture
def silent_url() -> Iterator[str]:
    """URL of a port that accepts connections and answers nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.parametrize("key", [KEY + "\n", f"  {KEY}\r\n"])
def test_whitespace_around_a_key_is_removed(key: str) -> None:
    assert AsyncSightline(key=key).transport.headers == {"authorization": f"Bearer {KEY}"}


@pytest.mark.parametrize("key", ["", " \n"])
def test_an_empty_key_is_no_key(key: str) -> None:
    assert AsyncSightline(key=key).transport.headers == {}


@pytest.mark.parametrize("key", [KEY + "\n" + KEY, KEY + "é", KEY + " x", KEY + "\0", "\ufeff" + KEY])
def test_a_key_with_other_characters_is_refused_by_the_constructor_and_not_shown(key: str) -> None:
    with pytest.raises(InvalidArgumentError, match="SIGHTLINE_API_KEY") as caught:
        Sightline(key=key)
    assert "AAAA" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("key", ["hello", KEY[:-1], KEY + "A", KEY.upper(), "Bearer", "0x" + "1" * 64])
def test_what_has_not_the_form_of_a_key_is_refused_by_the_constructor_and_not_shown(key: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"SIGHTLINE_API_KEY.*sightline login") as caught:
        Sightline(key=key)
    assert key not in "".join(traceback.format_exception(caught.value))


def test_a_command_refuses_what_is_no_key_before_it_is_sent(silent_url: str) -> None:
    env = {"SIGHTLINE_URL": silent_url, "SIGHTLINE_API_KEY": "hello"}
    done = CliRunner().invoke(application(), ["wallet"], env=env)
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith("The API key is not one")


@pytest.mark.parametrize("key", [KEY, KEY.replace("_test_", "_live_")])
def test_a_key_of_each_environment_is_accepted(key: str) -> None:
    assert Sightline(key=key).transport.headers == {"authorization": f"Bearer {key}"}


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), "60", 14_401])
async def test_a_duration_that_no_session_has_is_refused_by_its_name_and_nothing_is_sent(seconds: Any) -> None:
    sl = AsyncSightline("http://127.0.0.1:9", retry=NO_RETRY)
    with pytest.raises(InvalidArgumentError, match=f"seconds={seconds!r}"):
        sl.view(1, 2, seconds=seconds)
    for call in (
        sl.quote(1, 2, seconds=seconds),
        sl.sessions.create(1, 2, seconds=seconds),
        sl.sessions.terms(SESSION_ID, seconds=seconds),
        sl.sessions.extend(SESSION_ID, seconds),
        sl.sessions.extension_terms(SESSION_ID, seconds=seconds),
    ):
        with pytest.raises(InvalidArgumentError, match=f"seconds={seconds!r}"):
            await call


async def test_a_quote_says_for_how_many_whole_seconds_an_amount_pays() -> None:
    async with open_world() as world:
        consumer = await world.party("CONSUMER")
        async with AsyncSightline(world.base_url, consumer.plaintext) as sl:
            quote = await sl.quote(1, 2, seconds=60)
    rate = int(quote.rate_per_second_micro_usdc)
    assert [quote.affordable_s(amount) for amount in (0, rate - 1, rate, 10 * rate + 1)] == [0, 0, 1, 10]
    with pytest.raises(InvalidArgumentError, match=r"budget=0\.5 is not a whole number"):
        quote.affordable_s(0.5)  # type: ignore[arg-type]  what a program without types passes


@pytest.mark.parametrize(("key", "said"), [(f'"{KEY}"', "is in quotes"), (KEY.encode(), "is bytes and not text")])
def test_a_key_of_the_wrong_kind_is_refused_at_once(key: Any, said: str) -> None:
    with pytest.raises(InvalidArgumentError, match=said) as caught:
        Sightline(key=key)
    assert "AAAA" not in str(caught.value)


def test_a_float_is_named_as_the_reason_why_it_is_no_amount() -> None:
    for amount in (0.1, 0.5):
        with pytest.raises(InvalidArgumentError, match=rf'is a float.*usdc\("{amount}"\)'):
            usdc(amount)  # type: ignore[arg-type]  # what a caller without types does


def test_a_price_above_the_limit_is_given_in_usdc() -> None:
    assert "0.07128 USDC, above max_charge 0.0001 USDC. " in str(MaxChargeError(71_280, 100, 0))


def test_a_limit_that_was_meant_in_usdc_is_told_apart_from_one_that_is_too_low() -> None:
    assert str(MaxChargeError(71_280, 5, 0, is_plain=True)).endswith(
        'counts micro-USDC: for 5 USDC pass max_charge=usdc("5").'
    )
    assert str(MaxChargeError(71_280, 1_000, 0, is_plain=True)).endswith("Raise max_charge.")
    assert str(MaxChargeError(71_280, 5, 0)).endswith("Raise max_charge."), "usdc() was used"


@pytest.mark.parametrize("path", ["/api/v1", "/console/", "/sightline/mcp"])
def test_the_url_of_a_page_is_refused_as_the_url_of_a_server(path: str) -> None:
    with pytest.raises(InvalidArgumentError, match="leave out the path"):
        Sightline("http://127.0.0.1:8080" + path)


def test_a_protocol_error_does_not_show_the_headers_of_the_request(silent_url: str) -> None:
    with (
        httpx2.Client(headers={"x-secret": "hunter2\n"}) as http,
        Sightline(silent_url, KEY, http=http, retry=NO_RETRY) as sl,
    ):
        with pytest.raises(OutcomeUnknownError) as lost:
            sl.me()
        with sl.workspaces.events("w") as events, pytest.raises(SightlineError) as unread:
            next(events)
    for caught in (lost, unread):
        assert "hunter2" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    "url",
    [
        "127.0.0.1:8080",
        "localhost:8080",
        "video.example.com",
        "ftp://video.example.com",
        "http://",
        "http:///path",
        "http://video.example.com:99999",
        "http://[::1",
        "https://video example.com",
        "https://video.example.com/?a=b",
        "https://video.example.com/#a",
    ],
)
def test_a_url_that_cannot_be_a_server_is_refused_by_the_constructor(url: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"is not the URL of a server\..*https://") as caught:
        AsyncSightline(url)
    assert url in str(caught.value)


def test_a_wrong_url_is_shown_without_its_password() -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        Sightline("ftp://user:hunter2@video.example.com")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("http://127.0.0.1:8080/", "http://127.0.0.1:8080"),
        ("HTTPS://video.example.com/sightline/\n", "HTTPS://video.example.com/sightline"),
        ("http://[::1]:8080", "http://[::1]:8080"),
    ],
)
def test_a_url_is_kept_without_the_slash_at_its_end(url: str, kept: str) -> None:
    assert AsyncSightline(url).url == kept


@pytest.mark.parametrize("amount", [0.5, 500_000.0, Decimal("0.5"), "0.50", True, -1])
async def test_an_amount_that_is_not_whole_micro_usdc_is_refused_and_usdc_is_named(amount: Any) -> None:
    sl = AsyncSightline("http://127.0.0.1:9", retry=NO_RETRY)
    with pytest.raises(InvalidArgumentError, match=r'pass max_charge=usdc\("0\.50"\)'):
        sl.view(1, 2, max_charge=amount)
    with pytest.raises(InvalidArgumentError, match=r'pass max_hold_micro_usdc=usdc\("0\.50"\)'):
        await sl.sessions.create(1, 2, max_hold_micro_usdc=amount)


async def test_an_account_of_eth_account_is_refused_before_a_call_and_the_wallet_is_named() -> None:
    account: Any = Account.create()
    sl, chain = AsyncSightline("http://127.0.0.1:9", retry=NO_RETRY), AsyncChain("http://127.0.0.1:9")
    refused = pytest.raises(InvalidArgumentError, match=r"LocalWallet\(account\)")
    with refused:
        await chain.approve(account, token="0x1", spender="0x2", amount=1)
    with refused:
        await sl.auth.sign_in(account)
    with refused:
        await sl.workspaces.create(account, slug="a", name="a", roles=["CONSUMER"])
    with refused:
        await sl.wallet.approve(1, account)
    with refused:
        sl.view(1, 2, payer=account)
    assert LocalWallet(account).address == account.address


async def test_a_private_key_as_text_is_refused_where_a_wallet_is_passed_and_not_shown() -> None:
    key: Any = "0x" + "11" * 32
    sl = AsyncSightline("http://127.0.0.1:9", retry=NO_RETRY)
    with pytest.raises(InvalidArgumentError, match=r"LocalWallet\.from_key") as made:
        LocalWallet(key)
    with pytest.raises(InvalidArgumentError, match=r"A str is no wallet.*LocalWallet\.from_key") as passed:
        sl.view(1, 2, payer=key)
    for caught in (made, passed):
        assert "1111" not in str(caught.value)


class _LockedWallet:
    """A wallet whose device refuses to sign."""

    address = "0x" + "11" * 20

    def sign_typed_data(self, _typed_data: dict[str, Any]) -> str:
        raise PermissionError("the device is locked")


async def test_a_wallet_that_fails_to_sign_leaves_nothing_to_end_and_its_error_is_raised() -> None:
    asked: list[str] = []
    quote = {
        "quoteId": SESSION_ID, "ratePerSecondMicroUsdc": "1188", "estimatedTotalMicroUsdc": "71280", "supplyFactor": 1,
        "demandFactor": 1, "corridorMultiplier": 1, "baseRatePerSecondMicroUsdc": "1188", "availableOperators": 1,
        "expiresAt": "2026-11-26T12:00:00Z", "lat": 1, "lng": 2, "durationSeconds": 60,
    }  # fmt: skip
    terms = {
        "sessionId": SESSION_ID, "payer": _LockedWallet.address, "maxAmountMicroUsdc": "71280", "openBy": 1,
        "ratePerSecondMicroUsdc": "1188", "platformFeeBps": 1000, "authorization": {}, "consent": {},
    }  # fmt: skip

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.method)
        data = quote if request.url.path.endswith("/quote") else terms
        return httpx2.Response(200, json={"data": data}, request=request)

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as http:
        sl = AsyncSightline("http://127.0.0.1:9", KEY, http=http, retry=NO_RETRY)
        with pytest.raises(PermissionError, match="the device is locked"):
            async with sl.view(1, 2, seconds=60, payer=_LockedWallet()):
                pass
    assert asked == ["GET", "GET"]


def test_a_session_that_nobody_signed_for_names_the_wallet_of_program_and_command() -> None:
    body = {"code": "INSUFFICIENT_CREDIT", "message": "", "detail": "session:consent", "hint": "The amount is held"}
    said = str(InsufficientCreditError(402, body))
    assert "payer=LocalWallet.from_key(...)" in said
    assert "SIGHTLINE_WALLET_KEY" in said
    assert "Deposit" not in said
    assert "Deposit" in str(InsufficientCreditError(402, body | {"detail": "session:funds"}))


UNSIGNED = (
    "This service holds the session's amount before it starts. Sign the terms of a quote and send them as payment, or "
    "give the workspace a mandate (PUT /wallet/mandate)"
)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (NotReachedError("http://127.0.0.1:9", "refused"), "Check --api or SIGHTLINE_URL, and that"),
        (NotAuthenticatedError(401, {"code": "NOT_AUTHENTICATED"}), "Set SIGHTLINE_API_KEY; `sightline login`"),
        (NotAuthenticatedError(401, {"detail": "auth:credential"}), "Check SIGHTLINE_API_KEY: this server"),
        (MaxChargeError(2, 1, 0), "above --max-charge 0.000001 USDC. Raise --max-charge."),
        (NoOperatorError(1.5, 2.5, 0), "counts an operator, or wait longer (--wait)."),
        (NoOperatorError(1.5, 2.5, 0, SESSION_ID), f"in your session {SESSION_ID}: end that first (`sightline end"),
        (EndNotConfirmedError(SESSION_ID, None, "gone"), f"confirmed (gone). Run `sightline end {SESSION_ID}`, until"),
        (
            InsufficientCreditError(402, {"detail": "session:consent"}),
            "To sign, set SIGHTLINE_WALLET_KEY to the private",
        ),
        (
            InsufficientCreditError(402, {"detail": "session:consent", "hint": UNSIGNED}),
            "before it starts. The wallet signs for it, or a mandate of the workspace pays",
        ),
    ],
)
def test_a_command_names_its_options_where_the_client_names_arguments(error: SightlineError, words: str) -> None:
    said = in_words_of_commands(str(error))
    assert words in said
    assert not re.search(r"\w=|sessions\.", said), said


OWNER, OTHER = LocalWallet.from_key("0x" + "11" * 32), LocalWallet.from_key("0x" + "22" * 32)


async def test_a_wallet_of_another_account_than_the_key_is_named_before_it_signs() -> None:
    asked: list[str] = []
    offer = {
        "owner": OWNER.address.lower(), "spender": "0x2", "value": "1", "nonce": "0", "deadline": 1, "typedData": {},
    }  # fmt: skip

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.method)
        return httpx2.Response(200, json={"data": offer}, request=request)

    terms = ExtensionTerms(
        session_id=SESSION_ID, payer=OWNER.address, seconds=60, extra_amount_micro_usdc=MicroUsdc(1), open_by=1,
        authorization={}, consent={},
    )  # fmt: skip
    refused = pytest.raises(
        InvalidArgumentError, match=rf"{OTHER.address} is not that of .*(?i:{OWNER.address})\..* one"
    )
    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as http:
        sl = AsyncSightline("http://127.0.0.1:9", KEY, http=http, retry=NO_RETRY)
        with refused:
            await sl.wallet.approve(1, OTHER)
    assert asked == ["GET"]
    with refused:
        sign_payment(terms, OTHER)


@pytest.mark.parametrize("key", ["0x" + "11" * 32 + "\n", f" {'11' * 32}\r\n"])
def test_whitespace_around_the_key_of_a_wallet_is_left_out(key: str) -> None:
    assert LocalWallet.from_key(key).address == OWNER.address


@pytest.mark.parametrize("key", ["0x" + "11" * 31, f"'{'11' * 32}'", "11" * 32 + "\n" + "11" * 32, ""])
def test_what_is_no_key_of_a_wallet_is_refused_with_its_length_and_not_shown(key: str) -> None:
    with pytest.raises(InvalidArgumentError, match=rf"has {len(key)} characters.*SIGHTLINE_WALLET_KEY") as caught:
        LocalWallet.from_key(key)
    assert "1111" not in "".join(traceback.format_exception(caught.value))


def test_a_refusal_is_explained_by_its_own_reason_and_not_by_the_text_of_its_code() -> None:
    body = {"code": "INVALID_INPUT", "message": "Invalid request payload", "detail": "clip:off", "hint": "No clips"}
    assert str(InvalidInputError(400, body)) == "400 INVALID_INPUT (clip:off): No clips. Fetch frames instead."
    unexplained = {"code": "INVALID_INPUT", "message": "Invalid request payload", "detail": "body:json"}
    assert "Invalid request payload. Correct the field" in str(InvalidInputError(400, unexplained))


def test_a_session_that_is_over_and_a_rate_limit_say_what_is_possible() -> None:
    over = {"code": "INVALID_STATE", "detail": "session:state", "hint": "Not while ENDED", "state": "ENDED"}
    assert str(InvalidStateError(409, over)).endswith("Not while ENDED. The session is over: request another one.")
    assert str(InvalidStateError(409, over | {"state": "LIVE"})).endswith("which calls are allowed.")
    many = {"code": "RATE_LIMITED", "detail": "session:messages", "hint": "At most 10 messages in a minute"}
    assert str(RateLimitedError(429, many, {"retry-after": "37"})).endswith("in a minute. Try again in 37 s.")


async def test_a_call_of_a_closed_client_says_so() -> None:
    async with AsyncSightline("http://127.0.0.1:9", KEY) as sl:
        view = sl.view(1, 2)
    for call in (sl.me, view.__aenter__, sl.workspaces.events("w").__anext__):
        with pytest.raises(ClientClosedError, match=r"inside the block of the client"):
            await call()


def test_a_view_cannot_be_entered_after_its_client_was_closed() -> None:
    with Sightline("http://127.0.0.1:9", KEY) as sl:
        view = sl.view(1, 2)
    with pytest.raises(ClientClosedError), view:
        raise AssertionError("the view was entered")


@pytest.mark.parametrize("fps", [0, 0.0, -1, math.nan])
def test_an_fps_that_is_not_above_0_is_refused_before_the_session_is_bought(fps: float) -> None:
    view = Sightline("http://127.0.0.1:9", retry=NO_RETRY).view(1, 2)
    with pytest.raises(InvalidArgumentError, match="is not above 0"):
        view.frames(fps=fps)


@pytest.mark.parametrize("width", [0, -1])
def test_a_width_below_1_is_refused_before_the_session_is_bought(width: int) -> None:
    view = Sightline("http://127.0.0.1:9", retry=NO_RETRY).view(1, 2)
    with pytest.raises(InvalidArgumentError, match="is below 1"):
        view.frames(width=width)


WRONG_VALUES: Final = (
    ("watch 1 2 --count 0", "--count"),
    ("watch 1 2 --count -3", "--count"),
    ("watch 1 2 --fps 0", "--fps"),
    ("watch 1 2 --fps nan", "--fps"),
    ("watch 1 2 --seconds 0", "--seconds"),
    ("watch 1 2 --width 0", "--width"),
    ("watch 1 2 --max-charge abc", "abc is not an amount"),
    ("watch 91 2", "'91' is not a latitude: a number from -90 to 90."),
    ("watch 1 -180.1", "'-180.1' is not a longitude: a number from -180 to 180."),
    ("watch nan 2", "'nan' is not a latitude"),
    ("watch 1 2 --api localhost", "'localhost' is not the URL of a server"),
    ("request 1 2 --seconds 0", "--seconds"),
    ("request 1 2 --max-charge -1", "--max-charge"),
    ("request here 2", "'here' is not a latitude"),
    ("request 48,1374 11,5755", "'48,1374' has a comma. Write a decimal point, and a space"),
    ("request 48,11", "'48,11' has a comma"),
    ("request 1 11,5755", "'11,5755' has a comma"),
    ("request 48.1,191.5", "'191.5' is not a longitude"),
    ("quote 1 2 --seconds 0", "--seconds"),
    ("area 1 2 --radius 10", "10 m must be at least 50"),
    ("area 1 2 --radius 100001", "100001 m must be at most 100000"),
    ("quote 1 inf", "'inf' is not a longitude"),
    (f"extend {SESSION_ID} 0", "'seconds'"),
    (f"extend {SESSION_ID} --seconds 0", "--seconds"),
    (f"extend {SESSION_ID} 60 --seconds 60", "given twice"),
    ("extend 123 60", "'123' is not the id of a session"),
    ("end 123", "'123' is not the id of a session"),
    ("clip ../wallet", "'../wallet' is not the id of a session"),
    (f"clip {SESSION_ID} --seconds 31", "--seconds"),
    ("receipt 123", "'123' is not the id of a session"),
    ("statement --month 2026-11", "No such option: --month. It is an argument: leave out --month"),
    ("sessions --sate LIVE", "No such option: --sate (Possible options: --state)"),
    (f"receipt {SESSION_ID} --deployment 0x12", "--deployment"),
    (f"receipt {SESSION_ID} --deployment 1,0x12,0x34", "--deployment"),
    (f"receipt {SESSION_ID} --rpc-url nope", "--rpc-url"),
    ("listen 123", "'123' is not the id of a session"),
    ("listen --forward-to nope", "--forward-to"),
    ("listen --forward-to http://127.0.0.1:9 --secret whsec_nope!", "is whsec_ and base64 text"),
    ("sessions --state OVER", "--state"),
    ("sessions --view all", "--view"),
    ("sessions --limit 0", "--limit"),
    ("statement 2026-13", "2026-13 is not a month"),
    ("statement May", "May is not a month"),
    ("approve much", "much is not an amount"),
    ("signup --role FOO", "--role"),
    ("keys mint a --scope sessions:read --per-day much", "--per-day"),
    ("keys revoke 123", "'123' is not the id of a key"),
    ("invitations accept 123", "'123' is not the id of an invitation"),
    ("invitations decline 123", "'123' is not the id of an invitation"),
)


@pytest.mark.parametrize(("words", "named"), WRONG_VALUES)
def test_a_wrong_value_is_refused_as_a_wrong_command_line_before_anything_is_sent(words: str, named: str) -> None:
    env = {"SIGHTLINE_URL": "http://127.0.0.1:9", "SIGHTLINE_API_KEY": KEY, "SIGHTLINE_WALLET_KEY": "0x" + "11" * 32}
    done = CliRunner().invoke(application(), [*words.split(), "--json"], env=env)
    assert (done.exit_code, done.stdout) == (2, "")
    said = json.loads(done.stderr)
    assert said["code"] == "UsageError"
    assert named in said["message"]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("device --lat 91 --lng 2", "'91' is not a latitude"),
        ("device --lat 48,1374 --lng 2", "'48,1374' has a comma"),
        ("device --gps gpsd://host:port", "gpsd://host:port is not a receiver"),
        ("device --gps udp://host", "udp://host is not a receiver"),
        ("claim 123 --rpc-url http://127.0.0.1:9", "123 is no file. Pass a statement of the meter"),
        (f"claim {__file__} --rpc-url http://127.0.0.1:9", "is not a statement of a meter"),
        (f"reclaim {__file__} --rpc-url nope", "--rpc-url"),
        ("device --lat 1 --lng 2 --decline-beyond -1", "--decline-beyond"),
        ("publish clip.mp4 --whip http://127.0.0.1:9/whip --seconds -1", "--seconds"),
        ("publish clip.mp4 --whip nonsense", "nonsense is not a URL"),
    ],
)
def test_a_wrong_value_of_a_command_without_json_is_refused_as_a_wrong_command_line(words: str, named: str) -> None:
    env = {"SIGHTLINE_URL": "http://127.0.0.1:9", "SIGHTLINE_API_KEY": KEY, "COLUMNS": "200"}
    done = CliRunner().invoke(application(), words.split(), env=env)
    assert (done.exit_code, done.stdout) == (2, "")
    assert named in " ".join(done.stderr.replace("│", " ").split()), "the frame of the message may break it"


def test_frames_into_a_place_that_is_no_directory_are_refused_in_one_line_before_anything_is_bought(
    tmp_path: Path,
) -> None:
    env = {"SIGHTLINE_URL": "http://127.0.0.1:9", "SIGHTLINE_API_KEY": KEY}
    taken = tmp_path / "agent.py"
    taken.touch()
    for options in ([], ["--json"]):
        done = CliRunner().invoke(application(), ["watch", "1", "2", "--out", str(taken), *options], env=env)
        assert (done.exit_code, done.stdout) == (1, "")
        assert f"{taken}: This is a file, not a directory. Check --out." in done.stderr
    assert json.loads(done.stderr)["code"] == "FileExistsError"


def test_the_help_of_keys_mint_lists_every_scope() -> None:
    assert set(KEY_SCOPES) == {scope.value for scope in Scope}
    assert set(KEY_SCOPES[-2:]) == {"operators:write", "coverage:write"}, "those that allow nothing yet"
    for scopes in SCOPES.values():
        assert set(scopes) <= set(KEY_SCOPES)


def test_a_view_that_was_not_entered_says_so() -> None:
    with pytest.raises(ViewNotEnteredError, match=r"`with sl\.view"):
        _ = Sightline("http://127.0.0.1:9", retry=NO_RETRY).view(1, 2).session


@pytest.mark.parametrize(
    ("error", "code", "fields", "step"),
    [
        (InvalidStateError, "INVALID_STATE", {"detail": "pricing:quoteConsumed"}, "Get a new quote"),
        (InvalidStateError, "INVALID_STATE", {"detail": "pricing:quoteExpired"}, "Get a new quote"),
        (InvalidStateError, "INVALID_STATE", {"state": "ENDED"}, "Read the session"),
        (
            NotAuthorizedError,
            "NOT_AUTHORIZED",
            {"detail": "apiKey:scope", "requiredScope": "webhooks:write"},
            "with the scope webhooks:write: `sightline keys mint NAME --scope webhooks:write` mints one.",
        ),
        (
            NotAuthorizedError,
            "NOT_AUTHORIZED",
            {"detail": "apiKey:scope", "requiredScope": "sessions:operate"},
            "In a workspace of theirs, `sightline keys mint NAME --scope sessions:operate` mints one.",
        ),
        (NotAuthorizedError, "NOT_AUTHORIZED", {}, "Use a credential whose workspace and role may make this call."),
    ],
)
def test_an_error_names_the_next_step_of_its_cause(
    error: type[ApiError], code: str, fields: dict[str, str], step: str
) -> None:
    body = {"code": code, "message": "It is refused"} | fields
    with httpx2.Client(transport=httpx2.MockTransport(lambda _: httpx2.Response(409, json=body))) as http:
        sl = Sightline("http://127.0.0.1:9", KEY, http=http, retry=NO_RETRY)
        with pytest.raises(error) as caught:
            sl.webhooks.list()
    said = str(caught.value)
    assert step in said
    assert "party to the session" not in said
    assert ("Read the session" in said) == (step == "Read the session")


def test_the_default_retry_lasts_as_long_as_the_documents_say() -> None:
    down = NotReachedError("http://127.0.0.1:9", "refused")
    lasts = []
    for jitter in (0.5, 1.0):
        attempt, elapsed_s = 1, 0.0
        while (delay_s := RetryPolicy().delay_s(down, attempt=attempt, elapsed_s=elapsed_s, jitter=jitter)) is not None:
            attempt, elapsed_s = attempt + 1, elapsed_s + delay_s
        lasts.append((attempt, round(elapsed_s)))
    assert lasts == [(8, 8), (8, 16)]
    assert round(RetryPolicy().longest_s) == 16


async def test_https_to_a_server_without_tls_is_refused_at_once_with_the_right_address() -> None:
    async with open_world() as world:
        sl = AsyncSightline(world.base_url.replace("http://", "https://"), KEY)
        with pytest.raises(NotReachedError) as caught:
            await sl.me()
    assert caught.value.is_final
    assert str(caught.value).endswith(f": it does not speak TLS. Check url= or SIGHTLINE_URL: write {world.base_url}.")
    assert RetryPolicy().delay_s(caught.value, attempt=1, elapsed_s=0, jitter=1) is None


def test_a_server_that_is_down_is_named_before_the_second_attempt_and_once(caplog: pytest.LogCaptureFixture) -> None:
    asked: list[int] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(len(caplog.records))
        if len(asked) in {4, 5}:
            return httpx2.Response(200, json={"data": {"items": [], "nextCursor": None}}, request=request)
        raise httpx2.ConnectError("refused", request=request)

    caplog.set_level("INFO", "sightline_client")
    quick = RetryPolicy(attempts=4, first_delay_s=0.001)
    with httpx2.Client(transport=httpx2.MockTransport(answer)) as http:
        sl = Sightline("http://127.0.0.1:9", KEY, http=http, retry=quick)
        sl.webhooks.list()
        sl.webhooks.list()
        with pytest.raises(NotReachedError):
            sl.webhooks.list()
    assert asked == [0, 1, 1, 1, 2, 2, 3, 3, 3], "what was logged before each attempt"
    first, again, second = (record.getMessage() for record in caplog.records)
    assert first.startswith(
        "Cannot reach http://127.0.0.1:9: refused. Check url= or SIGHTLINE_URL, and that the server runs."
    )
    assert first.endswith("Trying again for at most 0 s.")
    assert again == "http://127.0.0.1:9 answers again."
    assert second == first


@pytest.mark.parametrize("amount", ["abc", "0,50", "-1", "0.0000001", "NaN"])
def test_what_is_no_amount_of_usdc_is_an_error_of_the_client(amount: str) -> None:
    with pytest.raises(InvalidArgumentError, match="is not an amount of USDC"):
        usdc(amount)
