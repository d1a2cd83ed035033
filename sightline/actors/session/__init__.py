"""The session actor: commands, durable transitions, effects on other actors, and media events."""
