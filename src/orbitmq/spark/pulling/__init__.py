"""Ranges of queues as Arrow batches: for the source, and for the sink, which looks up what it has stored."""
