"""Half messages, their ends and their checks."""
