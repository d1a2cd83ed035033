"""Settings: every one with a documented default."""
