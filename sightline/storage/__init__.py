"""Adapters of the ports `store`, `ledger`, `identity` and `relations`: on Postgres, and in memory.

- `database`: units of work on Postgres, called from trio: the bridge to asyncio, the pool, batching, migrations.
- `postgres`: the store, the ledger, API keys and nonces, the relations graph, as SQL.
- `memory`: the same in memory, for the simulation and for unit tests; both pass one contract suite.
- `embedded`: the Postgres that Sightline starts by itself, and its child process.
- `migrations`: the schema, as numbered SQL files that are never edited.

May import ports, domain and system. asyncio and asyncpg are used in this package only.
"""
