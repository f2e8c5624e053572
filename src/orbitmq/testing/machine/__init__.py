"""A machine in memory behind the interfaces of :mod:`orbitmq.runtime`: clock, disk, network, threads."""
