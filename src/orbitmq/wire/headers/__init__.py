"""Typed headers of the requests and responses that OrbitMQ uses, one module for each family.

A class is named after its code: PULL_MESSAGE has ``PullMessageRequest`` and ``PullMessageResponse``.
Requests and responses without fields need no class; all kinds of sends share ``SendMessageResponse``.
Import from the families, and from `orbitmq.wire.all_headers` only where most families are needed.
"""
