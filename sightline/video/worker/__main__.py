"""Runs a media worker process: `python -m sightline.video.worker`."""

from sightline.video.worker.process import main

main()
