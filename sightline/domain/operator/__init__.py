"""The operator workspace's state machine."""
