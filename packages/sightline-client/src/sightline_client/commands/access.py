"""Server, key and wallet of a command: by option, environment or settings file."""

import json
import logging
import re
import shlex
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import typer

from sightline_client.commands.client_settings import ClientSettings, load_client_settings, settings_path
from sightline_client.wording import naming_settings

if TYPE_CHECKING:
    import httpx2

    from sightline_client import Sightline
    from sightline_client.models import ChainConfig, Session
    from sightline_client.wallet import LocalWallet

SCOPES: Final = {
    "CONSUMER": ["sessions:read", "sessions:create", "pricing:read", "wallet:read"],
    "SUPPLIER": ["sessions:operate", "sessions:read", "wallet:read"],
}
"""Scopes of an API key, by the role of its workspace."""
_NO_VALUE: Final = frozenset(
    {
        "clip:off",
        "clip:signed",
        "frame:signed",
        "session:consent",
        "session:rate",
        "wallet:permit",
        "workspaceNotSelected",
    }
)
"""Details of INVALID_INPUT that are about the server, the wallet or the sign-in. Others are about a value that was
given."""
_WORDS: Final = (
    (r"\bmax_charge counts micro-USDC: for .*", "Raise --max-charge."),
    (r"\bRequest at most (\d+ s), or raise max_charge\.", r"\1 fit; for more, raise --max-charge."),
    (r"\bmax_charge\b", "--max-charge"),
    (r"\bCall sessions\.end\('[^']*'\), or run\b", "Run"),
    (r"\bLeave its view, or call sessions\.end\('[^']*'\); (`sightline end [^`]*`) on the command line\b", r"Run \1"),
    (r"\(operator_wait_s\)", "(--wait)"),
    (r": choose another slug\b", ": choose another one with --slug"),
    (r"\(rpc=\)", "(--rpc-url)"),
    (r"\bwhere the quote has available_operators \(`sightline quote`\)", "where `sightline quote` counts an operator"),
    (r"\bpass the wallet of the key's workspace as payer=.* set (SIGHTLINE_WALLET_KEY) to its private key\b",
     r"set \1 to the private key of the workspace's wallet"),
    (r"Sign the terms of .* send them as payment, or give the workspace a mandate \(PUT /wallet/mandate\)",
     "The wallet signs for it, or a mandate of the workspace pays"),
)  # fmt: skip
"""What errors of the client say for a Python program, and what that is for a command."""
PROBE_S: Final = 1.0
SILENT_AFTER_S: Final = 5.0
KEY_SCOPES: Final = (
    "sessions:read",
    "sessions:create",
    "sessions:operate",
    "pricing:read",
    "wallet:read",
    "webhooks:write",
    "operators:write",
    "coverage:write",
)
"""Scopes that a key can have. The last two are reserved, and allow nothing yet."""
_FIELDS: Final = {
    "durationSeconds": "--seconds",
    "maxDurationSeconds": "--seconds",
    "seconds": "the number of seconds",
    "text": "the text",
    "scopes": "--scope",
    "label": "the label",
    "instructions": "--instructions",
    "slug": "--slug",
}
"""Option or argument by the field of the interface that a refusal names."""
_FIELD: Final = re.compile(rf"(\(\w+:\w+\): )({'|'.join(_FIELDS)}): (.*) Correct the field that is named\.", re.DOTALL)


@contextmanager
def one_line_errors(
    *,
    as_json: bool = False,
    session_id: str | None = None,
    names_sessions: bool = False,
    says_reconnected: bool = False,
) -> Iterator[None]:
    """Print an error of the client, or of a file, as one line of text or JSON on stderr, and exit with 1.

    The JSON has the id of the session that it concerns: `session_id`, or the one that a view requests.
    With `names_sessions`, that one is named at once too, with its price, and that it has an operator. With
    `says_reconnected`, so is that a server answers again.
    The exit code is 2, as for a wrong command line, if the server cannot take a value.
    """
    from sightline_client.errors import SightlineError

    concerned = [] if session_id is None else [session_id]
    try:
        with _warnings(concerned, as_json=as_json, names_sessions=names_sessions, says_reconnected=says_reconnected):
            yield
    except BrokenPipeError:
        raise  # of stdout, such as `| head`: the reader wants no more
    except (SightlineError, ValueError, OSError) as error:
        text = " ".join(_said(error).split())
        typer.echo(json.dumps(_body(error, text, *concerned[-1:])) if as_json else text, err=True)
        raise typer.Exit(2 if _is_about_a_value(error) else 1) from None


def in_words_of_commands(text: str) -> str:
    """Return a text of the client with options and variables in place of arguments of Python."""
    text = naming_settings(text, url="--api or SIGHTLINE_URL", key="SIGHTLINE_API_KEY")
    for pattern, words in _WORDS:
        text = re.sub(pattern, words, text)
    return _FIELD.sub(lambda found: f"{found[1]}{_FIELDS[found[2]]} {found[3]}", text)


def _is_about_a_value(error: Exception) -> bool:
    from sightline_client.errors import InvalidInputError

    return isinstance(error, InvalidInputError) and error.detail not in _NO_VALUE


def _said(error: Exception) -> str:
    from sightline_client.errors import MaxChargeError

    if isinstance(error, OSError):
        return _file_error(error)
    steps = getattr(error, "__notes__", ()) if isinstance(error, MaxChargeError) else ()
    return " ".join([in_words_of_commands(str(error)), *steps])


def _file_error(error: OSError) -> str:
    if error.filename is None:
        return str(error)
    is_file = isinstance(error, FileExistsError) and Path(error.filename).is_file()
    reason = "This is a file, not a directory" if is_file else error.strerror
    return ". ".join([f"{error.filename}: {reason}", *getattr(error, "__notes__", ())])


@contextmanager
def named_by(option: str) -> Iterator[None]:
    """Name the option to check if a file cannot be written."""
    try:
        yield
    except OSError as error:
        error.add_note(f"Check {option}.")
        raise


@contextmanager
def fitting_command_named(command: Callable[[int], str]) -> Iterator[None]:
    """Name the command whose price is within --max-charge, made from its seconds, if the price is above."""
    from sightline_client.errors import MaxChargeError

    try:
        yield
    except MaxChargeError as error:
        if error.affordable_s:
            error.add_note(f"Run `{command(error.affordable_s)}`.")
        raise


def this_command_with(seconds: int) -> str:
    """Return the command that was typed, with these seconds."""
    words = sys.argv[1:]
    is_value = [before == "--seconds" for before in ["", *words]]
    kept = [
        word
        for word, is_number in zip(words, is_value, strict=False)
        if not (is_number or word == "--seconds" or word.startswith("--seconds="))
    ]
    # In front of the place: behind a `--` it would be no option.
    return shlex.join(["sightline", *kept[:1], "--seconds", str(seconds), *kept[1:]])


@contextmanager
def _warnings(concerned: list[str], *, as_json: bool, names_sessions: bool, says_reconnected: bool) -> Iterator[None]:
    """Print the client's warnings on stderr in the words of commands, or as JSON lines.

    The id of a session that a view requests is appended to `concerned`.
    """
    from sightline_client.runtime import INTERRUPTED_SESSION, REQUESTED_SESSION

    class Line(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if hasattr(record, INTERRUPTED_SESSION):
                return  # the command says it with the receipt
            text = in_words_of_commands(record.getMessage())
            session: Session | None = getattr(record, REQUESTED_SESSION, None)
            if session is not None:
                concerned.append(session.id)
            if not as_json:
                typer.echo(text, err=True)
            elif session is not None:
                said = {"sessionId": session.id, "holdMicroUsdc": str(session.hold_micro_usdc)}
                typer.echo(json.dumps(said), err=True)
            elif record.levelno >= logging.WARNING:
                typer.echo(json.dumps({"warning": text}), err=True)
            elif record.name == transport.name:
                typer.echo(json.dumps({"info": text}), err=True)

    package, transport = logging.getLogger("sightline_client"), logging.getLogger("sightline_client.transport")
    levels = package.level, transport.level
    package.setLevel(logging.INFO if names_sessions else logging.WARNING)
    transport.setLevel(logging.INFO if says_reconnected else logging.WARNING)
    before, propagated = package.handlers[:], package.propagate
    package.handlers[:], package.propagate = [Line()], False
    try:
        yield
    finally:
        package.setLevel(levels[0])
        transport.setLevel(levels[1])
        package.handlers[:], package.propagate = before, propagated


def _body(error: Exception, text: str, concerned: str | None = None) -> dict[str, object]:
    """Make the JSON of an error: the server's error envelope, or the kind of the client's own error as its code."""
    from sightline_client.errors import ApiError

    session_id = getattr(error, "session_id", None) or concerned
    named = {} if session_id is None else {"sessionId": session_id}
    if not isinstance(error, ApiError):
        kind = "INVALID_INPUT" if type(error) is ValueError else type(error).__name__
        return {"code": kind, "message": text} | named
    said = {
        "statusCode": error.status,
        "code": error.code,
        "message": text,
        "detail": error.detail,
        "state": error.state,
        "requiredScope": error.required_scope,
        "retryAfterSeconds": error.retry_after_s,
        "requestId": error.request_id,
    }
    return {name: value for name, value in said.items() if value is not None} | named


def own_workspace_id(sl: "Sightline") -> str:
    """Return the id of the workspace that the key belongs to, as the server says.

    Raises:
        ValueError: The credential belongs to none.
    """
    workspace_id = sl.me().workspace_id
    if workspace_id is None:
        raise ValueError("The credential belongs to no workspace. Set SIGHTLINE_API_KEY.")
    return workspace_id


def own_wallet() -> "LocalWallet":
    """Load the wallet of SIGHTLINE_WALLET_KEY or of the settings file.

    Raises:
        ValueError: The key is not set, or is not a private key.
    """
    wallet = configured_wallet()
    if wallet is None:
        raise ValueError(
            "SIGHTLINE_WALLET_KEY is not set. Set it to the private key of the wallet, or create one with "
            "`sightline signup`."
        )
    return wallet


def configured_wallet() -> "LocalWallet | None":
    """Load the wallet, if its key is set.

    Raises:
        ValueError: The key is not a private key.
    """
    from sightline_client.wallet import LocalWallet

    key = load_client_settings().wallet_key
    return LocalWallet.from_key(key) if key else None


@contextmanager
def client(url: str | None, *, needs_key: bool = False) -> "Iterator[Sightline]":
    """Open a client with the server and the key of option, environment or settings file.

    While an answer takes longer than SILENT_AFTER_S, it warns.

    Raises:
        ValueError: `needs_key`, and there is no API key.
        NotReachedError: No server is named, and the default address refuses connections.
    """
    from sightline_client import Sightline

    settings = load_client_settings()
    if needs_key and not settings.api_key:
        raise ValueError(
            f"SIGHTLINE_API_KEY is not set. Set it, or write api_key under [client] in {settings_path()}. "
            "`sightline signup` creates a key, `sightline login` one for an existing wallet."
        )
    address = server_address(url, settings)
    with _http_client(address) as http, Sightline(address, settings.api_key, http=http) as sl:
        yield sl


def _http_client(address: str) -> "httpx2.Client":
    """Create an HTTP client that warns while an answer is awaited: a server that hangs refuses no connection."""
    import httpx2

    from sightline_client._sync.client import TIMEOUT_S

    log = logging.getLogger(__name__)

    class Client(httpx2.Client):
        is_said = False

        def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
            # The server holds a call that waits for a picture for so long.
            after_s = SILENT_AFTER_S + int(request.url.params.get("waitMs", 0)) / 1_000
            slow = Timer(after_s, self.say_silent, [after_s])
            slow.daemon = True  # a program that is interrupted does not wait for it
            slow.start()
            try:
                answer = super().send(request, **options)
            finally:
                slow.cancel()
            self.is_said = False
            return answer

        def say_silent(self, after_s: float) -> None:
            if not self.is_said:
                self.is_said = True
                log.warning("%s has not answered for %g s. Waiting for at most %g s.", address, after_s, TIMEOUT_S)

    return Client(timeout=TIMEOUT_S)


def server_address(url: str | None, settings: ClientSettings) -> str:
    """Return the address that an option, the environment or the settings file names, else the default.

    Raises:
        NotReachedError: No server is named, and the default address refuses connections.
    """
    from sightline_client import DEFAULT_URL

    named = url or settings.url
    if not named:
        _require_running(DEFAULT_URL)
    return named or DEFAULT_URL


def _require_running(default_url: str) -> None:
    """Refuse the default address at once if nothing listens there: most often the variable was forgotten."""
    from sightline_client.errors import NotReachedError

    parts = urlsplit(default_url)
    try:
        socket.create_connection((str(parts.hostname), parts.port or 80), PROBE_S).close()
    except ConnectionRefusedError as error:
        raise NotReachedError(default_url, str(error), is_default=True) from error
    except OSError:
        pass  # the call itself will say what is wrong


def has_transaction(config: "ChainConfig", tx_hash: str) -> bool:
    """Return whether the chain of a server has a transaction.

    Raises:
        ChainError: The node of the chain does not answer.
    """
    from sightline_client import Chain

    return Chain(config.rpc_url).call("eth_getTransactionReceipt", tx_hash) is not None


def paying_wallet(config: "ChainConfig") -> "LocalWallet | None":
    """Load the configured wallet if the server holds payments in escrow, which the wallet signs; else return None."""
    wallet = configured_wallet()
    return wallet if config.is_escrow else None
