"""Pop: the broker deals messages out and keeps which of them are in flight."""
