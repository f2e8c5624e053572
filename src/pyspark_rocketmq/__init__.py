"""Spark finds this package by its name: the format ``rocketmq`` works without registration."""

from __future__ import annotations

# First: a PySpark that is too old is refused by its version, not by what it lacks.
import orbitmq.spark.versions  # noqa: F401
from orbitmq.spark.datasource import DefaultSource

__all__ = ["DefaultSource"]
