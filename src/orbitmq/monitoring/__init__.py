"""What an operator's programs ask of a server: a small HTTP listener, and whether the server is well."""
