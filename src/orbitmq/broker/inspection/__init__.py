"""What administrators ask a running broker: messages, queues, progress of groups, its own state."""
