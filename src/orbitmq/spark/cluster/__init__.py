"""The cluster as Spark sees it: connections, routes, offsets, and places such as "earliest" or a time."""
