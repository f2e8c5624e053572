"""Consume queues: where the messages of each queue are in the log, and reading them."""
