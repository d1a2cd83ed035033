"""A small EVM chain in its own process: py-evm over SQLite, reached by JSON-RPC on loopback.

It is for demonstration, development and tests: it mines on demand, never reorganises, and accepts connections from
this machine only.
"""

from sightline.chain.embedded.precompiles import leave_out

leave_out()  # before any module here imports py-evm
