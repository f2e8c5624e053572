"""Spark finds this package by its name: the format ``rocketmq`` works without registration."""

from __future__ import annotations

from orbitmq.spark.datasource import DefaultSource

__all__ = ["DefaultSource"]
