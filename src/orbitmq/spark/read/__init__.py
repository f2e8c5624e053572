"""Reading topics: planning ranges, pulling them, messages as columns."""
