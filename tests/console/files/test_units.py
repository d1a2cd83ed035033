"""The unit tests of web/src, by node's test runner."""

from tests.console.files.test_build import node


def test_the_units_of_the_console_hold():
    said = node("test/run.mjs")
    assert "# fail 0" in said
    assert "# pass 0" not in said
