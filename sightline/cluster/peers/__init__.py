"""Messages between the servers of one service."""
