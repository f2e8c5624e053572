"""Answers to administrators about a running broker: messages, queues, progress of groups, its state."""
