"""Postgres by asyncpg behind one bridge, migrations, embedded Postgres, and the in-memory store."""
