"""Money as callers see it: settlements, receipts, wallets, usage."""
