"""Messages between actors of different servers."""
