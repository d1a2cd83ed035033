"""The books: journal entries with lines that sum to 0, and what is computed from them."""
