"""The clients: producers and consumers. Programs import them from :mod:`orbitmq`.

``core`` holds the parts common to all clients (routes, name servers, calls to brokers), ``producer`` and
``consumer`` hold one subject per file, and ``observe`` the hooks for traces. Deciders (``core.inquiry``,
``core.routing``, ``core.routes``, ``producer.queue_choice``, ``producer.faults``, ``producer.budget``,
``consumer.allocation``, ``consumer.process_queue``, ``life``, ``validation``, ``namespaces``) do no I/O; the
other modules do the I/O and run the timers.
"""
