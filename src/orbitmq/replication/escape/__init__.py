"""Sends the messages that an acting master delivers to masters of other groups."""
