"""How fast, for how many: load on an endpoint, measured at the client, with the server's own figures beside it."""
