"""Spark reads and writes topics: the data source ``rocketmq`` and what it is made of.

``read`` and ``write`` are its two directions, ``cluster`` is what both know of brokers; ``jobs`` use them.

Nothing here starts a thread or opens a socket when it is imported; Spark's workers are forked.
"""
