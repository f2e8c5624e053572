"""Reads ranges of queues as Arrow batches: for the source, and for the sink's look-up of stored messages."""
