"""The compiled contracts, and their call data and events."""
