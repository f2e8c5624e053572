"""Answers to administrators about a running broker: its messages, queues, groups' progress and state."""
