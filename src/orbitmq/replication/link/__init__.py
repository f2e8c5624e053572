"""The link between a master and its followers: bytes of the log one way, how far they came the other."""
