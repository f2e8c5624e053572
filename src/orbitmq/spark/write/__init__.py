"""Writing topics: rows as messages, each delivered as often as promised."""
