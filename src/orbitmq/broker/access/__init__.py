"""Users and rules of a broker, and the gate that asks them (RocketMQ's ACL 2.0)."""
