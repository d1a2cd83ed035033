"""Plain words for what pydantic says of a wrong value, and for the reasons of an end."""

import re
from typing import Final

_SUBJECT: Final = re.compile(r"^[A-Z]\w+ should (?=be |have |match )")
_PLAINER: Final = (
    (re.compile(r"be a valid integer\b.*"), "be a whole number"),
    (re.compile(r"be a valid number\b.*"), "be a number"),
    (re.compile(r"be a valid (?:boolean|bool)\b.*"), "be true or false"),
    (re.compile(r"be a valid string\b"), "be a text"),
    (re.compile(r"be a valid (?:list|array|tuple)\b"), "be a list"),
    (re.compile(r"be (?:a valid dictionary|an object)\b.*"), "be an object"),
    (re.compile(r"be greater than or equal to"), "be at least"),
    (re.compile(r"be less than or equal to"), "be at most"),
    (re.compile(r" after validation, not (\d+)$"), r", and has \1"),
)


def in_words(message: str) -> str:
    """Return a message of a `pydantic.ValidationError` without its terms: `must be at most 90`."""
    said = message.removeprefix("Value error, ")
    if said == "Field required":
        return "is missing"
    plain, count = _SUBJECT.subn("must ", said, count=1)
    if count == 0:
        return said
    for pattern, words in _PLAINER:
        plain = pattern.sub(words, plain)
    return plain


def naming_settings(text: str, *, url: str, key: str) -> str:
    """Return a text of the client with what the reader sets, such as SIGHTLINE_URL, in place of arguments of Python."""
    text = text.replace("url= or SIGHTLINE_URL", url)
    return text.replace("Pass key= or set SIGHTLINE_API_KEY", f"Set {key}").replace("key= or SIGHTLINE_API_KEY", key)


ENDED: Final = {
    "CONSUMER_ENDED": "the consumer ended it",
    "OPERATOR_ENDED": "the operator ended it",
    "MAX_DURATION": "its longest duration is over",
    "LOCATION_STALE": "no position of the operator arrived for too long",
    "GEOFENCE_EXIT": "the operator was not at the place for too long",
    "MEDIA_LOST": "no video of the operator arrived for too long",
    "FUNDS_LOST": "its wallet could no longer pay for it",
    "CONSUMER_LOST": "the consumer's program asked for nothing for too long",
    "CONSUMER_CANCELLED": "withdrawn before anybody filmed",
    "OPERATOR_CANCELLED": "the operator cancelled it",
    "WAIT_TIMEOUT": "no operator accepted it in time",
    "START_TIMEOUT": "no operator started it in time",
    "PLATFORM_ENDED": "the service ended it",
}
"""Why a session is over, by its end reason."""

LACKS: Final = {
    "ALLOWANCE": "allowance",
    "BALANCE": "balance",
    "SESSION_LIMIT": "own limit per session",
    "DAY_LIMIT": "own limit per day",
}
"""What does not cover a refused payment, by what the settlement is refused for."""
