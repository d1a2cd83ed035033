"""OAuth: the endpoints that clients call, and the calls of the page where a member answers them."""
