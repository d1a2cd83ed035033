"""Media inside a worker: frame assembly, the GOP cache, forwarding, decoding. Independent of HTTP and IPC."""
