"""Typed bodies under their Java names, one module for each family.

Making the classes of a family takes milliseconds at each start of a command or of a Spark worker: import from
the families, and from `orbitmq.wire.all_bodies` only where most families are needed.
"""
