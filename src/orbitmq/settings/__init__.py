"""Settings of servers: typed, in RocketMQ's own keys, from Java properties text."""
