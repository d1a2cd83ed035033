"""The media worker process: answers offers and holds the live inputs assigned to it (asyncio)."""
