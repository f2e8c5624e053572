"""Several brokers of one name: copies, quorum, roles. Attached to a broker by ``cluster``."""
