"""The exit code of a command that the server refuses: 2 if the value cannot be taken, 1 for any other reason."""

import json

import pytest
import typer

from sightline.http.services import ResourceOptions
from sightline.ports.video import ClipMissing, ClipMissingReason
from sightline_client import EndNotConfirmedError
from sightline_client.commands.access import one_line_errors
from tests.client.commands.program import sightline
from tests.http.world import WorldOptions, data_of, open_world

UNKNOWN = "3fe8a2b0-1c1f-4a6e-9d61-0c9a8d7e6f50"


@pytest.mark.parametrize(
    ("words", "exit_code", "code", "detail"),
    [
        ("quote 1 2 --seconds 999999", 2, "UsageError", None),
        ("request 1 2 --seconds 999999", 2, "UsageError", None),
        (f"end {UNKNOWN}", 1, "SESSION_NOT_FOUND", None),
        ("request 1 2", 1, "NoOperatorError", None),
    ],
)
async def test_a_value_that_the_server_cannot_take_exits_with_2_and_another_refusal_with_1(
    words: str, exit_code: int, code: str, detail: str | None
) -> None:
    async with open_world() as world:
        done = await sightline(world, await world.party("CONSUMER"), *words.split(), "--json")
    said = json.loads(done.stderr.splitlines()[-1])
    assert (done.returncode, said["code"], said.get("detail")) == (exit_code, code, detail)
    assert said.get("sessionId") == (UNKNOWN if UNKNOWN in words else None)
    if code == "UsageError":
        assert "'--seconds': must be at most 14400" in said["message"]


def test_an_end_that_is_not_confirmed_names_the_session_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit), one_line_errors(as_json=True, names_sessions=True):
        raise EndNotConfirmedError(UNKNOWN, None, "gone")
    said = json.loads(capsys.readouterr().err)
    assert (said["code"], said["sessionId"]) == ("EndNotConfirmedError", UNKNOWN)


async def test_a_server_that_keeps_no_clips_is_named_as_the_reason_and_the_command_line_is_not_wrong() -> None:
    async with open_world() as world:
        consumer, operator = await world.party("CONSUMER"), await world.party("SUPPLIER")
        session_id = (await world.live(consumer, operator))["id"]
        world.video.keep(session_id, ClipMissing(reason=ClipMissingReason.OFF))
        done = await sightline(world, consumer, "clip", session_id)
    assert done.returncode == 1
    assert "This server keeps no video for clips" in done.stderr
    assert "Invalid request" not in done.stderr
    assert "Correct the field" not in done.stderr


async def test_signed_frames_of_a_server_that_does_not_sign_are_refused_before_a_view_is_bought() -> None:
    async with open_world(WorldOptions(resources=ResourceOptions())) as world:
        consumer = await world.party("CONSUMER")
        done = await sightline(world, consumer, "watch", "52.52", "13.405", "--signed")
        assert done.returncode == 1
        assert "does not sign frames. Leave out --signed." in done.stderr
        assert data_of(await consumer.key.get("/api/v1/sessions"))["items"] == []
