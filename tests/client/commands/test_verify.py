"""`sightline verify` on a file that is no picture."""

from pathlib import Path

from typer.testing import CliRunner

from sightline_client.commands import application


def test_a_file_that_is_no_picture_is_not_called_changed(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("no picture")
    done = CliRunner().invoke(application(), ["verify", str(file)])
    assert (done.exit_code, done.stdout) == (2, "")
    assert f"{file} is no JPEG picture and no MP4 clip. Save one" in done.stderr
