"""What pydantic says of a wrong value, in the words of people who do not know pydantic."""

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
