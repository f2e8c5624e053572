"""Distinguishes a library that is not installed from a module of OrbitMQ that cannot be loaded.

An optional library is imported where it is first needed. The import of a compiled module that is older than
its source fails there too, and installing the library once more would not help.
"""

from __future__ import annotations


def is_missing(error: ImportError) -> bool:
    """Whether a library is not installed, or broken; else it is a module of OrbitMQ that failed."""
    return (error.name or "").partition(".")[0] != "orbitmq"
