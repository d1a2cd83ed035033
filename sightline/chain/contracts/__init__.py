"""The compiled contracts, their call data and their events."""
