"""Run the examples of docs/guides/simulation.md unchanged."""

import re
from pathlib import Path

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "simulation.md"


def test_the_examples_of_the_guide_run(capsys):
    examples = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert len(examples) == 2
    names = {"__name__": "guide"}
    for example in examples:
        exec(compile(example, str(GUIDE), "exec"), names)
    assert capsys.readouterr().out.count("virtual seconds") == 3


def test_the_guide_names_every_checker():
    from simulation.checkers import all_checkers

    text = GUIDE.read_text()
    for checker in all_checkers():
        assert f"| {checker.name} |" in text


def test_the_guide_names_only_commands_that_there_are():
    from simulation.scenarios import SCENARIOS
    from simulation.simulate import SERVERS, SEVERAL

    for name in re.findall(r"--scenario ([a-z-]+)", GUIDE.read_text()):
        assert name in (*SCENARIOS, SERVERS, SEVERAL)
