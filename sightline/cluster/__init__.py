"""Several servers of one service: who owns which shards, and what servers ask and tell each other."""
