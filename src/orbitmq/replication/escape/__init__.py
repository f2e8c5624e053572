"""Messages that an acting master delivers: they go to masters of other groups."""
