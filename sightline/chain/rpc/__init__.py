"""JSON-RPC: the client, typed contract reads, and the guarded endpoint for clients."""
