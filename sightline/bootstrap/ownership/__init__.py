"""How this server owns shards: all of a database, or some of them as one of several servers."""
