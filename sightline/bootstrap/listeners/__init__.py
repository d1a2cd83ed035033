"""The addresses and certificates of both HTTP listeners."""
