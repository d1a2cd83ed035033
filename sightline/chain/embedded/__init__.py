"""A small EVM chain in a process of its own: py-evm over SQLite, spoken to by JSON-RPC on loopback.

For demonstration, development and tests: it mines on demand, never reorganises, and answers only this machine.
"""
