"""Worlds of several servers that share the shards of one database: who owns what, and whether it serves the truth."""
