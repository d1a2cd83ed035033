"""Access to the operating system: clock, ids, logs, child processes, the lock of the data directory."""
