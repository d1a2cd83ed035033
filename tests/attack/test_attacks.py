"""Every finding and probe of the security audit, replayed against a server as a user starts it."""

from pathlib import Path

import pytest

from tests.attack.run import run_all

pytestmark = [pytest.mark.interop, pytest.mark.alone, pytest.mark.timeout(3_600)]  # each attack has a limit of its own


@pytest.mark.nightly("tests/http/server/test_wire_fuzz.py::test_no_input_stops_the_server")
async def test_the_server_holds_against_every_attack_of_the_catalogue(data_directory: Path) -> None:
    outcomes = await run_all(data_directory)
    assert len(outcomes) >= 29
    assert {each.title: each.seen for each in outcomes if not each.is_held} == {}
