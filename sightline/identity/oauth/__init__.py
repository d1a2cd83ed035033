"""Access that a member grants to a client by OAuth 2.1, as the authorization of MCP asks for (ADR 0241)."""
