"""A whole cluster from one call.

:class:`orbitmq.cluster.local.LocalCluster` runs it inside this process,
:class:`orbitmq.cluster.processes.ProcessCluster` as processes of its own.
"""
