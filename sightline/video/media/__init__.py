"""What happens to media inside a worker: assembly, the GOP cache, forwarding, decoding. Knows no HTTP and no IPC."""
