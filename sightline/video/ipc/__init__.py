"""Messages between the server process and its media worker processes."""
