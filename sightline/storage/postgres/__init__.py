"""The store, the ledger, API keys and the relations graph on Postgres."""
