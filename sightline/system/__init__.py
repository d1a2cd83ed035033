"""The machine under us: clock, ids, logs, child processes, the data directory lock."""
