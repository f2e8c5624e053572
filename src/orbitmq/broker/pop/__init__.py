"""Pop: the broker deals messages out and records which of them are in flight."""
