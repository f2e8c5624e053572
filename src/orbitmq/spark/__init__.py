"""Spark reads and writes topics: the data source ``rocketmq`` and its parts.

``read`` and ``write`` are its two directions, ``cluster`` holds the requests to brokers that both use;
``jobs`` build on them.

No module here starts a thread or opens a socket when it is imported, since Spark forks its workers.
"""
