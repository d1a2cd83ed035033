"""Video inputs of other servers."""
