"""Authentication and authorization: users and signatures, rules and verdicts (RocketMQ's ACL 2.0). No I/O."""
