"""Errors of a start: what caused them, how they are explained, and how long a start tries again."""
