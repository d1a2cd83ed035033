"""Views that are paid by x402, without an account."""
