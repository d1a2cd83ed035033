"""The session's state machine."""
