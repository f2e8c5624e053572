"""The name server: which brokers are alive, and which topics have queues on them.

The state is in :mod:`~orbitmq.nameserver.routes` (pure, no I/O, time is an argument);
:mod:`~orbitmq.nameserver.server` connects it to sockets, timers and files.
"""
