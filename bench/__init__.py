"""Programs that measure Sightline beside conventional stacks; results are in RESULTS.md."""
