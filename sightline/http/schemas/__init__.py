"""Models of what goes over the wire: requests are validated by them, responses described."""
