"""Sending, pulling, sending back: the services behind the request handlers and the fast path."""
