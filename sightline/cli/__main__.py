"""`python -m sightline.cli`: the same as the `sightline` command."""

from sightline.cli import main

main()
