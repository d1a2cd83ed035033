"""Mailbox, ref, registry, supervisor, timers: the actor kernel on trio."""
