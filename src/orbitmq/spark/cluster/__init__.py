"""Spark's view of a cluster: connections, routes, offsets, and places such as "earliest" or a time."""
