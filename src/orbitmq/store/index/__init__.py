"""RocketMQ's message index: messages by key and time."""
