"""Spark reads and writes topics: the data source ``rocketmq`` and what it is made of.

Nothing here starts a thread or opens a socket when it is imported; Spark's workers are forked.
"""
