"""Users and rules of a broker, and the gate that checks requests by them (RocketMQ's ACL 2.0)."""
