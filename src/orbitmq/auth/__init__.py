"""Who may do what: users and their signatures, rules, verdicts (RocketMQ's ACL 2.0). No I/O."""
