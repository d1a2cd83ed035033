"""Everything that is kept, behind the ports of `store`, `ledger`, `identity` and `relations`.

The way to Postgres: `bridge` (trio to asyncio, whole units of work), `work` (one unit), `pool`,
`group_commit`. Postgres itself: `embedded` (as the server sees it), `postgres_child` and `postgres_account`
(its own process), `migrate`. The store: `postgres` is its front; a file per thing behind it (`sessions`,
`session_lists`, `workspaces`, `heartbeats`, `quotes`, `idempotency`, `shards`), `commits` and `json` in
common; `retention` drops what may go; `memory` is the same store in memory. The money: `ledger_*`. Keys,
nonces and the relations graph: `identity_*`.

May import ports, domain and system. asyncio and asyncpg end at this room's border.
"""
