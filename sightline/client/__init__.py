"""The Python SDK. Knows only the wire."""
