"""Typed bodies under their Java names, one module for each family.

Making the classes of a family takes milliseconds, which a command and a worker of Spark spend at each start:
import from the families, and from `orbitmq.wire.all_bodies` where most are needed anyway.
"""
