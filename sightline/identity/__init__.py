"""API keys, cookies, wallet sign-in, the relations graph."""
