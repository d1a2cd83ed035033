"""Settlement on the chain: JSON-RPC client, relayer, watcher, compiled contracts and the embedded test chain."""
