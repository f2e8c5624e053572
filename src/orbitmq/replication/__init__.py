"""Several brokers of one name: copies of log and tables, quorum, roles. ``cluster`` attaches it to a
broker."""
