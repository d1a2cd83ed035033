"""Options that many commands have."""

import json
import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Annotated, Any, Final, cast, final
from uuid import UUID

import typer
from typer.core import TyperCommand, TyperGroup
from typing_extensions import override

AREA_RADIUS_M: Final = 50, 100_000
"""Smallest and largest radius of the area in which a workspace is offered sessions."""

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON; lists have one object a line.")]


def _server_url(text: str) -> str:
    from sightline_client.wire import server_url  # not at the top, so that `--help` is fast

    try:
        return server_url(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


Url = Annotated[
    str | None,
    typer.Option("--api", parser=_server_url, metavar="URL", help="URL of the server; default: SIGHTLINE_URL."),
]


def http_url(text: str | None) -> str | None:
    """Refuse an option that is no URL of HTTP.

    Raises:
        typer.BadParameter: It is none.
    """
    if text is not None and not text.startswith(("http://", "https://")):
        raise typer.BadParameter(f"{text} is not a URL. Write it with http:// and the host: http://127.0.0.1:4242.")
    return text


def id_argument(kind: str, explained: str | None = None) -> Any:
    """An argument with the id of a session, or of another kind."""

    def parse(text: str) -> str:
        try:
            return str(UUID(text))
        except ValueError:
            raise typer.BadParameter(f"{text[:80]!r} is not the id of {kind}. Pass it as it was printed.") from None

    return typer.Argument(parser=parse, help=explained)


SessionId = Annotated[str, id_argument("a session", "Id of a session, as `sightline sessions` lists it.")]


def _coordinate(name: str, limit: int) -> Callable[[object], float]:
    def parse(value: object) -> float:  # also of the default, which is a number
        text = str(value).strip()
        if "," in text:
            raise typer.BadParameter(
                f"{text!r} has a comma. Write a decimal point, and a space between latitude and longitude, such as "
                "48.137 11.575."
            )
        try:
            degrees = float(text)
        except ValueError:
            degrees = math.nan
        if not -limit <= degrees <= limit:
            raise typer.BadParameter(f"{text!r} is not a {name}: a number from -{limit} to {limit}.")
        return degrees

    return parse


_latitude, _longitude = _coordinate("latitude", 90), _coordinate("longitude", 180)
Lat = Annotated[float, typer.Argument(parser=_latitude, help="Latitude of the place in degrees.")]
Lng = Annotated[float, typer.Argument(parser=_longitude, help="Longitude of the place in degrees.")]


def lat_option(explained: str) -> Any:
    """An option with a latitude."""
    return typer.Option(parser=_latitude, metavar="DEGREES", help=explained)


def lng_option(explained: str) -> Any:
    """An option with a longitude."""
    return typer.Option(parser=_longitude, metavar="DEGREES", help=explained)


def amount(text: str) -> int:
    """Read an amount in USDC as micro-USDC.

    Raises:
        typer.BadParameter: It is none.
    """
    from sightline_client import usdc  # not at the top, so that `--help` is fast

    try:
        return usdc(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def usdc_argument(explained: str) -> Any:
    """An argument with an amount in USDC, such as 0.50; its value is in micro-USDC."""
    return typer.Argument(parser=amount, metavar="USDC", help=explained)


def usdc_option(explained: str) -> Any:
    """An option with an amount in USDC, such as 0.50; its value is in micro-USDC."""
    return typer.Option(parser=amount, metavar="USDC", help=explained)


def choice_option(choices: type[StrEnum], explained: str) -> Any:
    """An option with one of some words, in any case."""
    words = [each.value for each in choices]

    def parse(text: str) -> StrEnum:
        for each in choices:
            if each.value.lower() == text.lower():
                return each
        raise typer.BadParameter(f"{text!r} is not one of {', '.join(words)}.")

    return typer.Option(parser=parse, metavar="|".join(words), help=explained, autocompletion=lambda: words)


MaxCharge = Annotated[int | None, usdc_option("Highest charge; more is refused.")]
_JSON: Final = "--json"
_UsageError: Final = cast("type[Exception]", typer.BadParameter.__base__)
"""What the parser raises. Newer versions of typer have it in a private module of theirs, and older ones in click."""
_NEGATIVE: Final = re.compile(r"-\.?\d\S*", re.ASCII)
_PAIR: Final = re.compile(r"([+-]?\d+(?:\.\d+)?),(\s*)([+-]?\d+(?:\.\d+)?)", re.ASCII)
_FIRST_OF_PAIR: Final = re.compile(r"[+-]?\d+(\.\d+)?,", re.ASCII)


@final
class PlaceCommand(TyperCommand):
    """A command with coordinates as arguments, which may be negative: `-33.86` is no option.

    A pair as maps show it is read too: `48.137, 11.575`, with or without the space. `48,137` may also be one number
    with a decimal comma, and is refused.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse; a number with a space before it is read as a number and not as an option."""
        takes_value = {
            name
            for each in cast("list[Any]", self.params)
            if each.param_type_name == "option" and not each.is_flag
            for name in each.opts
        }
        words: list[str] = []
        for before, word in zip(["", *args], args, strict=False):
            words += [word] if before in takes_value else _numbers(word)
        return super().parse_args(ctx, words)


def _numbers(word: str) -> list[str]:
    """Split a pair of coordinates; other words are kept."""
    pair = _PAIR.fullmatch(word)
    if pair is not None and ("." in word or pair[2]):
        return [f" {pair[1]}", f" {pair[3]}"]
    if _FIRST_OF_PAIR.fullmatch(word):
        return [f" {word[:-1]}"]
    return [f" {word}" if _NEGATIVE.fullmatch(word) else word]


@final
class ProgramGroup(TyperGroup):
    """All commands. A wrong command line with --json among its words is answered in JSON."""

    _is_json = False

    @override
    def make_context(self, info_name: str | None, args: list[str], *rest: Any, **extra: Any) -> Any:
        self._is_json = _JSON in args
        with self._answered():
            return super().make_context(info_name, args, *rest, **extra)

    @override
    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        try:
            return super().resolve_command(ctx, args)
        except _UsageError as error:
            from sightline_client.commands import installed_commands

            if not installed_commands():
                cast(
                    Any, error
                ).message += " Commands of a server, such as dev and serve, need the package sightline-live."
            raise

    @override
    def invoke(self, ctx: Any) -> Any:
        with self._answered():
            return super().invoke(ctx)

    @contextmanager
    def _answered(self) -> Iterator[None]:
        """Word the error of a wrong command line. With --json, print it as a line on stderr, and exit as without."""
        try:
            yield
        except _UsageError as error:
            from sightline_client.wording import in_words

            wrong = cast(Any, error)
            wrong.message = in_words(wrong.message)
            if not self._is_json:
                raise
            message = str(wrong.format_message()).rstrip(".")
            if wrong.ctx is not None:
                message += f". `{wrong.ctx.command_path} --help` shows what it takes."
            typer.echo(json.dumps({"code": "UsageError", "message": message}), err=True)
            raise typer.Exit(wrong.exit_code) from None
