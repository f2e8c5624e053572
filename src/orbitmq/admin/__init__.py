"""Operations on a running cluster, for programs and for the command line."""

from orbitmq.admin.client import Admin
from orbitmq.admin.model import BrokerInfo, QueueProgress, QueueStatus, RouteEntry

__all__ = ["Admin", "BrokerInfo", "QueueProgress", "QueueStatus", "RouteEntry"]
