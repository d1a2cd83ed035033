"""JSON-RPC: the client, typed reads of contracts, and the guarded endpoint for guests."""
