"""Base of all models: camelCase names, strict types, and the error label of an invalid field.

An invalid request is answered INVALID_INPUT with the label of the first invalid field: the one in `LABELS`, else
`area:field`.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from textwrap import shorten
from typing import Annotated, Any, ClassVar, Final, Self, TypeAlias, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from sightline.domain.errors import RefusedError
from sightline.domain.refusal import Code, Refusal

UUID_PATTERN: Final = r"^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"
ADDRESS_PATTERN: Final = r"^0x[0-9a-fA-F]{40}$"
MONEY_PATTERN: Final = r"^(0|[1-9][0-9]{0,77})$"
TEXT_PATTERN: Final = r"^[^\u0000]*$"
"""Any text without NUL, which Postgres cannot keep."""
_CONTROLS: Final = r"\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
"""Control characters, line breaks, and characters that change the direction of text (Unicode UAX 9)."""
LINE_PATTERN: Final = rf"^[^{_CONTROLS}]*$"
VISIBLE_PATTERN: Final = rf"^[^{_CONTROLS}]*[^{_CONTROLS}\s][^{_CONTROLS}]*$"
HASH_PATTERN: Final = r"^0x[0-9a-f]{64}$"
DECIMAL_PATTERN: Final = r"^-?[0-9]{1,15}(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,3})?$"
"""A number as in JSON."""
SLUG_PATTERN: Final = r"^[a-z0-9](?:[a-z0-9-]{1,30}[a-z0-9])$"
INTEGER_PATTERN: Final = r"^[0-9]{1,16}$"
_FORMS: Final = {
    UUID_PATTERN: "not a UUID",
    ADDRESS_PATTERN: "not an address, 0x and 40 hex digits",
    LINE_PATTERN: "must be one line, without tabs and other control characters",
    TEXT_PATTERN: "must have no character U+0000",
    SLUG_PATTERN: "must be 3 to 32 lowercase letters, digits and hyphens, and begin and end with no hyphen",
}
"""Messages for values that do not match a pattern, in place of the regular expression."""
COORDINATE_DECIMALS: Final = 6
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MESSAGE_LENGTH_MAX: Final = 600
_FIELD_NAME_MAX: Final = 64
_INSTANT: Final = re.compile(r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(\.\d{1,30})?([Zz]|[+-]\d{2}:\d{2})", re.ASCII)
_FLAGS: Final = {"1": True, "true": True, "0": False, "false": False}
DECIMAL: Final = re.compile(DECIMAL_PATTERN)
_INTEGER: Final = re.compile(INTEGER_PATTERN)


@lru_cache(maxsize=16_384)
def iso(at_ms: int) -> str:
    """An instant as ISO 8601 in UTC with milliseconds and Z. Cached: most instants are presented several times."""
    return f"{(_EPOCH + timedelta(milliseconds=at_ms)).isoformat(timespec='milliseconds').removesuffix('+00:00')}Z"


def iso_or_none(at_ms: int | None) -> str | None:
    """Like `iso`; None for None."""
    return None if at_ms is None else iso(at_ms)


def coordinate(degrees: float) -> float:
    """Degrees rounded to the six decimals that are stored and shown, half to even."""
    return round(degrees, COORDINATE_DECIMALS)


def labelled(label: str, message: str) -> PydanticCustomError:
    """An error of a rule between fields, with the label it is answered with."""
    return PydanticCustomError("rule", message, {"label": label})


def _whole(value: Any) -> Any:
    """JSON knows one kind of number: 600.0 is an integer too."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _decimal(value: Any) -> Any:
    if not isinstance(value, str) or not DECIMAL.fullmatch(value):
        raise PydanticCustomError("decimal", "must be a plain decimal number")
    return float(value)


def _integer_text(value: Any) -> Any:
    if not isinstance(value, str) or not _INTEGER.fullmatch(value):
        raise PydanticCustomError("integer", "must be a plain whole number")
    return int(value)


def _flag_text(value: Any) -> Any:
    if value not in _FLAGS:
        raise PydanticCustomError("flag", "must be 1, true, 0 or false")
    return _FLAGS[value]


def _integer_or_text(value: Any) -> Any:
    if isinstance(value, str):
        return int(value) if _INTEGER.fullmatch(value) else value
    return _whole(value) if isinstance(value, float) else value


def _instant_ms(value: Any) -> Any:
    """RFC 3339 text, with its offset, as epoch milliseconds."""
    if not isinstance(value, str) or not _INSTANT.fullmatch(value):
        raise PydanticCustomError("instant", "must be an ISO 8601 timestamp with Z or an offset")
    try:
        return int(datetime.fromisoformat(value.upper().replace(" ", "T")).timestamp() * 1000)
    except (ValueError, OverflowError) as error:
        raise PydanticCustomError("instant", "must be an ISO 8601 timestamp") from error


Uuid: TypeAlias = Annotated[
    str,
    StringConstraints(pattern=UUID_PATTERN, to_lower=True),
    Field(json_schema_extra={"format": "uuid", "examples": ["3f0c8c8e-6a1b-4b51-9e0e-0a7f1c9d2b44"]}),
]
Address: TypeAlias = Annotated[
    str,
    StringConstraints(pattern=ADDRESS_PATTERN),
    Field(json_schema_extra={"examples": ["0x52908400098527886E0F7030069857D2E4169EE7"]}),
]
Text: TypeAlias = Annotated[str, StringConstraints(pattern=TEXT_PATTERN)]
Money: TypeAlias = Annotated[
    str,
    StringConstraints(pattern=MONEY_PATTERN),
    Field(description="Whole micro-USDC as decimal text", json_schema_extra={"examples": ["1000"]}),
]
Instant: TypeAlias = Annotated[
    str, Field(json_schema_extra={"format": "date-time", "examples": ["2026-11-20T12:00:00.000Z"]})
]
"""An instant in a response."""
InstantMs: TypeAlias = Annotated[
    int,
    BeforeValidator(_instant_ms),
    WithJsonSchema({"type": "string", "format": "date-time", "examples": ["2026-11-20T12:00:00.000Z"]}),
]
"""An instant in a request, read into epoch milliseconds."""
Flag: TypeAlias = Annotated[bool, BeforeValidator(_flag_text)]
"""A yes or no in a query string."""
WHOLE: Final = BeforeValidator(_whole)
"""Put behind the bounds of an `int`: takes 600.0 for 600."""
SafeWhole: TypeAlias = Annotated[
    int,
    BeforeValidator(_integer_or_text),
    Field(ge=0, le=9_007_199_254_740_991),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 0, "maximum": 9_007_199_254_740_991},
                {"type": "string", "pattern": r"^[0-9]{1,15}$"},
            ],
            "examples": [17],
        }
    ),
]
"""An integer, or the same as decimal text."""
Latitude: TypeAlias = Annotated[
    float,
    Field(ge=-90, le=90, allow_inf_nan=False, json_schema_extra={"examples": [52.520008]}),
    AfterValidator(coordinate),
]
Longitude: TypeAlias = Annotated[
    float,
    Field(ge=-180, le=180, allow_inf_nan=False, json_schema_extra={"examples": [13.404954]}),
    AfterValidator(coordinate),
]


INTEGER_TEXT: Final = BeforeValidator(_integer_text)
"""Put behind the bounds of an `int`: a whole number in a query string."""
DECIMAL_TEXT: Final = BeforeValidator(_decimal)
"""Put behind the bounds of a `float`: a number in a query string."""


def decimal_parameter(minimum: float, maximum: float, example: float, description: str) -> WithJsonSchema:
    """The OpenAPI schema of a `DECIMAL_TEXT` parameter: the number that the text is read as."""
    schema = {"type": "number", "minimum": minimum, "maximum": maximum, "description": description}
    return WithJsonSchema({**schema, "examples": [example]})


def _title(name: str, _field: object) -> str:
    return name.strip("_").replace("_", " ").capitalize()


class Model(BaseModel):
    """Base of all: wire names are camelCase, values never change."""

    model_config = ConfigDict(
        defer_build=True,
        alias_generator=to_camel,
        field_title_generator=_title,
        populate_by_name=True,
        frozen=True,
        extra="ignore",
    )


class Output(Model):
    """Base of responses, used for documentation only: responses are not validated. Every key is always present."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=True)


class RequestModel(Model):
    """Base of what callers send."""

    model_config = ConfigDict(strict=True)

    AREA: ClassVar[str]
    """First half of the default label."""
    LABELS: ClassVar[Mapping[str, str]] = {}
    """Wire name of a field to the label it is refused with."""

    @classmethod
    def label_of(cls, name: str) -> str:
        """The label with which a field, by its wire name, is refused."""
        return cls.LABELS.get(name, f"{cls.AREA}:{name}")

    @classmethod
    def refusal_of(cls, error: ValidationError) -> Refusal:
        """What the first thing that pydantic found is answered with."""
        from sightline_client.wording import in_words  # few calls are refused; a start does without it

        first = error.errors(include_url=False, include_input=False)[0]
        names = [part for part in first["loc"] if isinstance(part, str)]
        label = first.get("ctx", {}).get("label") or cls.label_of(names[0] if names else "body")
        named = f"{names[0]}: " if names else ""
        # Cut at a word, and only what no rule of ours says: the longest list of allowed values fits.
        said = in_words(first["msg"])
        if first["type"] == "string_pattern_mismatch" and named:
            said = (
                "not a nextCursor of this list" if names[0] == "cursor" else _FORMS.get(first["ctx"]["pattern"], said)
            )
        message = shorten(f"{named}{said}", _MESSAGE_LENGTH_MAX, placeholder=" ...")
        return Refusal(Code.INVALID_INPUT, label, message)


class Input(RequestModel):
    """Base of JSON bodies."""

    REFUSES_NULL: ClassVar[bool] = False
    """Whether a null is refused for a field that may be absent."""
    REFUSES_MISSPELT: ClassVar[bool] = False
    """Whether an unknown field is refused when its name resembles that of a known one. Set on creating calls."""
    NAMES_ELSEWHERE: ClassVar[Mapping[str, str]] = {}
    """What other services call a field, and its name here. Refused like a misspelt name."""

    @classmethod
    def parse(cls, raw: object) -> Self:
        """Validate decoded JSON.

        Raises:
            RefusedError: INVALID_INPUT with the label of the first field that is wrong.
        """
        if not isinstance(raw, dict):
            raise RefusedError(Refusal(Code.INVALID_INPUT, f"{cls.AREA}:body", "The body must be a JSON object"))
        if cls.REFUSES_MISSPELT:
            cls._refuse_misspelt(raw)
        if cls.REFUSES_NULL:
            for name, field in cls.model_fields.items():
                wire = field.alias or name
                if wire in raw and raw[wire] is None:
                    raise RefusedError(Refusal(Code.INVALID_INPUT, cls.label_of(wire), f"{wire}: must not be null"))
        try:
            return cls.model_validate(raw, by_alias=True, by_name=False)
        except ValidationError as error:
            raise RefusedError(cls.refusal_of(error)) from None

    @classmethod
    def _refuse_misspelt(cls, raw: dict[str, object]) -> None:
        known = {field.alias or name for name, field in cls.model_fields.items()}
        for name in raw:
            meant = cls.NAMES_ELSEWHERE.get(name) or resembling(name, known) if name not in known else None
            if meant is not None:
                message = f"{name}: unknown field; did you mean {meant}?"
                raise RefusedError(Refusal(Code.INVALID_INPUT, cls.label_of(meant), message))


def resembling(name: str, known: Collection[str]) -> str | None:
    """The known name that `name` is a misspelling of, or None.

    Case, `_` and `-` are ignored. A misspelling is within two edits (insert, delete, replace), one for a name of up to
    three characters, or one is the beginning of the other and has at least four, as maxDuration of maxDurationSeconds.
    """
    plain = _plain_name(name)
    if len(plain) > _FIELD_NAME_MAX:
        return None
    for each in sorted(known):
        other = _plain_name(each)
        short, long = sorted((plain, other), key=len)
        if (len(short) >= 4 and long.startswith(short)) or edit_distance(plain, other) <= min(
            2, (len(short) - 1) // 2 + (len(short) > 3)
        ):
            return each
    return None


def edit_distance(left: str, right: str) -> int:
    """The Levenshtein distance: how many characters to insert, delete or replace."""
    row = list(range(len(right) + 1))
    for i, a in enumerate(left, 1):
        diagonal, row[0] = row[0], i
        for j, b in enumerate(right, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (a != b))
    return row[-1]


def _plain_name(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


class Query(RequestModel):
    """Base of query strings. Fields whose type is a tuple may be repeated; others may not."""

    @classmethod
    def parse(cls, raw: Mapping[str, Sequence[str]]) -> Self:
        """Validate the values of each parameter.

        Raises:
            RefusedError: INVALID_INPUT with the label of the first parameter that is wrong.
        """
        values: dict[str, object] = {}
        for wire, is_repeatable in _parameters(cls):
            given = raw.get(wire)
            if not given:
                continue
            if is_repeatable:
                values[wire] = tuple(given)
            elif len(given) > 1:
                raise RefusedError(Refusal(Code.INVALID_INPUT, cls.label_of(wire), f"{wire}: given more than once"))
            else:
                values[wire] = given[0]
        try:
            return cls.model_validate(values, by_alias=True, by_name=False)
        except ValidationError as error:
            raise RefusedError(cls.refusal_of(error)) from None


@cache
def _parameters(query: type[Query]) -> tuple[tuple[str, bool], ...]:
    """The parameters of a query by their names on the wire, and whether each may be repeated."""
    return tuple((field.alias or name, _is_repeatable(field.annotation)) for name, field in query.model_fields.items())


def _is_repeatable(annotation: Any) -> bool:
    return get_origin(annotation) is tuple or any(get_origin(each) is tuple for each in get_args(annotation))
