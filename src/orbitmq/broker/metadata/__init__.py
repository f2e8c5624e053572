"""Topics, subscription groups and offsets, and their files on disk."""
