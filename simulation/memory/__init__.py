"""The store, the ledger, API keys and the relations graph in memory, for the simulation and unit tests."""
