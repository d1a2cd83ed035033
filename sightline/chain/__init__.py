"""JSON-RPC, relayer, watcher, contracts and the embedded test chain."""
