"""Operations on a running cluster, for programs and for the command line."""

from orbitmq.admin.access import AccessAdmin
from orbitmq.admin.access_model import RefusalCount, Rule, UserEntry, Verdict
from orbitmq.admin.answers import IncompleteError, LeftOut, Partial
from orbitmq.admin.broker_admin import BrokerAdmin
from orbitmq.admin.client import Admin
from orbitmq.admin.clients import ClientAdmin, ConnectedClient, QueueAtClient, RunningClient
from orbitmq.admin.dead_letters import DeadLetterAdmin, DeadLetters, RedriveJob, RedriveState
from orbitmq.admin.definitions import Change, DefinitionAdmin, Definitions, RuleSettings, UserSettings
from orbitmq.admin.draining import Reader
from orbitmq.admin.group_model import Conflict, GroupDetails, Member, Move, QueueLag, Subscription
from orbitmq.admin.group_settings import Backoff, GroupSettings
from orbitmq.admin.groups import GroupAdmin
from orbitmq.admin.lag_causes import LagCause, LagKind, LagReport
from orbitmq.admin.messages import ConsumedNow, MessageAdmin
from orbitmq.admin.model import (
    BrokerInfo,
    BrokerSetting,
    BrokerState,
    QueueStatus,
    RouteEntry,
    ServerCertificate,
    TopicSettings,
)
from orbitmq.admin.progress import QueueProgress, TopicLag
from orbitmq.admin.quotas import QuotaAdmin, QuotaEntry
from orbitmq.admin.timers import BrokerTimers, LateMessage, TimerAdmin, TimerMessage
from orbitmq.admin.topics import TopicAdmin
from orbitmq.client.observe.trace_steps import TraceStep

__all__ = [
    "AccessAdmin",
    "Admin",
    "Backoff",
    "BrokerAdmin",
    "BrokerInfo",
    "BrokerSetting",
    "BrokerState",
    "BrokerTimers",
    "Change",
    "ClientAdmin",
    "Conflict",
    "ConnectedClient",
    "ConsumedNow",
    "DeadLetterAdmin",
    "DeadLetters",
    "DefinitionAdmin",
    "Definitions",
    "GroupAdmin",
    "GroupDetails",
    "GroupSettings",
    "IncompleteError",
    "LagCause",
    "LagKind",
    "LagReport",
    "LateMessage",
    "LeftOut",
    "Member",
    "MessageAdmin",
    "Move",
    "Partial",
    "QueueAtClient",
    "QueueLag",
    "QueueProgress",
    "QueueStatus",
    "QuotaAdmin",
    "QuotaEntry",
    "Reader",
    "RedriveJob",
    "RedriveState",
    "RefusalCount",
    "RouteEntry",
    "Rule",
    "RuleSettings",
    "RunningClient",
    "ServerCertificate",
    "Subscription",
    "TimerAdmin",
    "TimerMessage",
    "TopicAdmin",
    "TopicLag",
    "TopicSettings",
    "TraceStep",
    "UserEntry",
    "UserSettings",
    "Verdict",
]
