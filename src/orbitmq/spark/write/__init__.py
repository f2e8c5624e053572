"""Writing topics: rows become messages, sent at least once or exactly once."""
