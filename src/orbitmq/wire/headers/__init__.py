"""Typed headers of the requests and responses that are used here, one module for each family.

The class is named after the code: PULL_MESSAGE has ``PullMessageRequest`` and ``PullMessageResponse``.
Requests and responses without fields need no class; each kind of send is answered with
``SendMessageResponse``.

Import from the families, and from `orbitmq.wire.all_headers` where most are needed anyway.
"""
