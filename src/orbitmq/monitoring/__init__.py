"""Monitoring of a server by HTTP: a small listener with its health and its metrics."""
