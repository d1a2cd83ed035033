"""What a user reads about a wrong value: the rule, and no term of the library that holds it."""

import os
import subprocess
import sys
from typing import Annotated

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sightline_client.wording import in_words


class Asked(BaseModel):
    model_config = ConfigDict(strict=True)

    lat: Annotated[float, Field(ge=-90, le=90)] = 0.0
    seconds: Annotated[int, Field(gt=0, lt=100)] = 1
    is_sound_on: bool = False
    name: Annotated[str, Field(min_length=2, max_length=4)] = "cam"
    tags: Annotated[list[str], Field(max_length=1)] = []
    place: dict[str, int] = {}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"lat": 91.0}, "must be at most 90"),
        ({"lat": -91.0}, "must be at least -90"),
        ({"lat": "57.7"}, "must be a number"),
        ({"seconds": 1.5}, "must be a whole number"),
        ({"seconds": "1"}, "must be a whole number"),
        ({"seconds": 0}, "must be greater than 0"),
        ({"seconds": 100}, "must be less than 100"),
        ({"is_sound_on": "yes"}, "must be true or false"),
        ({"name": 7}, "must be a text"),
        ({"name": "c"}, "must have at least 2 characters"),
        ({"name": "camera"}, "must have at most 4 characters"),
        ({"tags": "red"}, "must be a list"),
        ({"tags": ["red", "blue"]}, "must have at most 1 item, and has 2"),
        ({"place": []}, "must be an object"),
    ],
)
def test_a_wrong_value_is_named_by_its_rule(given: dict[str, object], words: str):
    with pytest.raises(ValidationError) as raised:
        Asked.model_validate(given)
    assert in_words(raised.value.errors()[0]["msg"]) == words


def test_a_missing_value_is_missing_and_an_own_message_stays_as_it_is():
    assert in_words("Field required") == "is missing"
    assert in_words("Value error, not a place") == "not a place"


BAD_SETTINGS = [
    ("sightline_client quote 1 2 --api htp://x", {}, "Check --api or SIGHTLINE_URL: write it with http"),
    ("sightline_client quote 1 2", {"SIGHTLINE_API_KEY": "svc_x"}, "Check SIGHTLINE_API_KEY, or make a new key"),
    ("sightline_client.mcp_server", {"SIGHTLINE_API_KEY": "svc_x"}, "Check SIGHTLINE_API_KEY, or make a new key"),
    ("sightline_client.mcp_server", {"SIGHTLINE_URL": "htp://x"}, "Check SIGHTLINE_URL: write it with http"),
]


@pytest.mark.parametrize(("words", "settings", "said"), BAD_SETTINGS)
def test_a_program_names_the_option_or_variable_that_is_wrong(words: str, settings: dict[str, str], said: str) -> None:
    env = os.environ | {"SIGHTLINE_URL": "http://127.0.0.1:9", "NO_COLOR": "1", "COLUMNS": "400"} | settings
    command = [sys.executable, "-m", *words.split()]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode in (1, 2)
    assert said in " ".join(done.stderr.split())
    assert "url=" not in done.stderr
    assert "key=" not in done.stderr
