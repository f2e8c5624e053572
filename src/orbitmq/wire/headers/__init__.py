"""Typed headers of every request and response, one module for each family.

The class is named after the code: PULL_MESSAGE has ``PullMessageRequest`` and ``PullMessageResponse``.
Responses without header fields have no class; every kind of send is answered with ``SendMessageResponse``.

Import from the families, and from `orbitmq.wire.all_headers` where most are needed anyway.
"""
