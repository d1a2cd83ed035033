"""Options that many commands have."""

import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
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
    from sightline_client.commands.access import in_words_of_commands
    from sightline_client.wire import server_url  # not at the top, so that `--help` is fast

    try:
        return server_url(text)
    except ValueError as error:
        raise typer.BadParameter(in_words_of_commands(str(error))) from error


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
            shown = "An API key" if text.startswith("svc_") else repr(text[:80])
            raise typer.BadParameter(f"{shown} is not the id of {kind}. Pass it as it was printed.") from None

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
        return usdc(text.strip())
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


@final
class USDC(int):
    """Type of an argument of `usdc_argument`, in micro-USDC. `--help` shows its name: what is written is no <int>."""


def _positive(text: str) -> int:
    value = amount(text)
    if value == 0:
        raise typer.BadParameter("The amount must be above 0.")
    return value


def usdc_argument(explained: str, *, is_positive: bool = False) -> Any:
    """An argument with an amount in USDC, such as 0.50; its value is in micro-USDC. Its command is a
    `NumberCommand`."""
    return typer.Argument(parser=_positive if is_positive else amount, help=explained)


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
Instructions = Annotated[str | None, typer.Option(help="Text for the operator.")]
_JSON: Final = "--json"
_READER_STOPPED: Final = 141
"""Exit code if the reader of stdout wants no more, as in `| head -1`: what a shell shows after SIGPIPE."""
_UsageError: Final = cast("type[Exception]", typer.BadParameter.__base__)
"""What the parser raises. Newer versions of typer have it in a private module of theirs, and older ones in click."""
_LIKENESS: Final = 0.75
"""From here on two names of options are so alike that one may be meant for the other."""
_NEGATIVE: Final = re.compile(r"-\.?\d\S*", re.ASCII)
_PAIR: Final = re.compile(r"([+-]?\d+(?:\.\d+)?),(\s*)([+-]?\d+(?:\.\d+)?)", re.ASCII)
_FIRST_OF_PAIR: Final = re.compile(r"[+-]?\d+(\.\d+)?,", re.ASCII)


class NumberCommand(TyperCommand):
    """A command with numbers as arguments, which may be negative: `-33.86` is no option.

    A number that must not be negative is refused as such, and not as an unknown option.
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
            words += [word] if before in takes_value else self.numbers(word)
        return super().parse_args(ctx, words)

    def numbers(self, word: str) -> list[str]:
        """Return an argument as it is parsed: a negative number with a space before it."""
        return [f" {word}" if _NEGATIVE.fullmatch(word) else word]


@final
class PlaceCommand(NumberCommand):
    """A command with coordinates as arguments.

    A pair as maps show it is read too: `48.137, 11.575`, with or without the space. `48,137` may also be one number
    with a decimal comma, and is refused.
    """

    @override
    def numbers(self, word: str) -> list[str]:
        pair = _PAIR.fullmatch(word)
        if pair is not None and ("." in word or pair[2]):
            return [f" {pair[1]}", f" {pair[3]}"]
        if _FIRST_OF_PAIR.fullmatch(word):
            return [f" {word[:-1]}"]
        return super().numbers(word)


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
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result

    @contextmanager
    def _answered(self) -> Iterator[None]:
        """Word the error of a wrong command line. With --json, print it as a line on stderr, and exit as without.

        A reader of stdout that wants no more is no error: the command ends without a word.
        """
        try:
            yield
        except (BrokenPipeError, SystemExit) as error:
            # Help is printed by rich, which exits by itself when the pipe is closed.
            if isinstance(error, SystemExit) and not isinstance(error.__context__, BrokenPipeError):
                raise
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, sys.stdout.fileno())  # the interpreter flushes what is left
            os.close(nothing)
            raise typer.Exit(_READER_STOPPED) from None
        except _UsageError as error:
            from sightline_client.wording import in_words

            wrong = cast(Any, error)
            wrong.message = in_words(wrong.message)
            _name_what_fits(wrong)
            if not self._is_json:
                raise
            message = str(wrong.format_message()).rstrip(".")
            if wrong.ctx is not None:
                message += f". `{wrong.ctx.command_path} --help` shows what it takes."
            typer.echo(json.dumps({"code": "UsageError", "message": message}), err=True)
            raise typer.Exit(wrong.exit_code) from None


def _name_what_fits(wrong: Any) -> None:
    """Say of an unknown option that it is an argument, if it is one; else keep the options that are nearly the same."""
    if not getattr(wrong, "possibilities", None) or wrong.ctx is None:
        return
    option = str(wrong.option_name)
    name = option.lstrip("-").replace("-", "_")
    if any(each.param_type_name == "argument" and each.name == name for each in wrong.ctx.command.params):
        wrong.message, wrong.possibilities = f"{wrong.message}. It is an argument: leave out {option}", None
    else:
        wrong.possibilities = get_close_matches(option, wrong.possibilities, cutoff=_LIKENESS)
