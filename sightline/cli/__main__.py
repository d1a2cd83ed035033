"""Runs the `sightline` command as `python -m sightline.cli`."""

from sightline.cli import main

main()
