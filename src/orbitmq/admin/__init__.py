"""Operations on a running cluster, for programs and for the command line."""

from orbitmq.admin.answers import IncompleteError, LeftOut
from orbitmq.admin.client import Admin
from orbitmq.admin.model import BrokerInfo, QueueStatus, RouteEntry
from orbitmq.admin.timers import BrokerTimers, TimerMessage
from orbitmq.client.observe.trace_steps import TraceStep

__all__ = [
    "Admin",
    "BrokerInfo",
    "BrokerTimers",
    "IncompleteError",
    "LeftOut",
    "QueueStatus",
    "RouteEntry",
    "TimerMessage",
    "TraceStep",
]
