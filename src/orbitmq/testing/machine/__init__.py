"""A machine in memory behind the seam of :mod:`orbitmq.runtime`: clock, disk, network, threads."""
