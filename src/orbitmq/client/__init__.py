"""The clients: producers and consumers. Programs import them from :mod:`orbitmq`.

``core`` is what they share (routes, name servers, calls to brokers), ``producer`` and ``consumer`` hold one
idea a file, ``observe`` the hooks for traces. Deciders (``core.inquiry``, ``core.routing``, ``core.routes``,
``producer.queue_choice``, ``producer.faults``, ``producer.budget``, ``consumer.allocation``,
``consumer.process_queue``, ``life``, ``validation``, ``namespaces``) do no I/O; the others move bytes and
timers.
"""
