"""The device of an operator: its position (`gps`), heartbeats, assigned sessions and their publishers (`run`)."""
