"""Sending, pulling, sending back: what the request handlers and the fast path are doors to."""
