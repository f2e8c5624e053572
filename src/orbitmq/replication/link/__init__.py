"""The link between a master and its followers: bytes of the log in one direction, acknowledgements in the
other."""
