"""Reads the chain block by block into the ledger: wallet events, balances and allowances."""
