"""Makes this server a member of its service, alone or with a bus to other servers."""
