"""Compares the books with the chain. Reads and decodes by itself what the watcher has read, to find its errors too."""
