"""Ownership of shards: which ones this server owns, and how it takes, keeps and gives them up."""
