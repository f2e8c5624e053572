"""The blocking operations library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from orbitmq import admin
from orbitmq.runtime.loop_thread import LoopThread
from orbitmq.sync.blocking import BlockingClient, blocking, made_as

A = TypeVar("A")


class _Part(Generic[A]):
    """One part of the operations, which runs on the loop of its :class:`Admin`."""

    def __init__(self, core: A, running: Callable[[], LoopThread]) -> None:
        self._core = core
        self._running = running


class BrokerAdmin(_Part[admin.BrokerAdmin]):
    """See :class:`orbitmq.admin.BrokerAdmin`."""

    list = blocking(admin.BrokerAdmin.list)
    states = blocking(admin.BrokerAdmin.states)
    replicas = blocking(admin.BrokerAdmin.replicas)
    without_master = blocking(admin.BrokerAdmin.without_master)
    runtime = blocking(admin.BrokerAdmin.runtime)
    readers = blocking(admin.BrokerAdmin.readers)
    take_writes = blocking(admin.BrokerAdmin.take_writes)
    give_writes = blocking(admin.BrokerAdmin.give_writes)
    settings = blocking(admin.BrokerAdmin.settings)
    setting_details = blocking(admin.BrokerAdmin.setting_details)
    settings_of = blocking(admin.BrokerAdmin.settings_of)
    change_settings = blocking(admin.BrokerAdmin.change_settings)
    change_all = blocking(admin.BrokerAdmin.change_all)
    certificates = blocking(admin.BrokerAdmin.certificates)


class ClientAdmin(_Part[admin.ClientAdmin]):
    """See :class:`orbitmq.admin.ClientAdmin`."""

    list = blocking(admin.ClientAdmin.list)
    show = blocking(admin.ClientAdmin.show)


class TopicAdmin(_Part[admin.TopicAdmin]):
    """See :class:`orbitmq.admin.TopicAdmin`."""

    list = blocking(admin.TopicAdmin.list)
    route = blocking(admin.TopicAdmin.route)
    settings = blocking(admin.TopicAdmin.settings)
    create = blocking(admin.TopicAdmin.create)
    would_hide = blocking(admin.TopicAdmin.would_hide)
    delete = blocking(admin.TopicAdmin.delete)
    status = blocking(admin.TopicAdmin.status)
    oldest = blocking(admin.TopicAdmin.oldest)


class GroupAdmin(_Part[admin.GroupAdmin]):
    """See :class:`orbitmq.admin.GroupAdmin`."""

    list = blocking(admin.GroupAdmin.list)
    settings = blocking(admin.GroupAdmin.settings)
    show = blocking(admin.GroupAdmin.show)
    lag = blocking(admin.GroupAdmin.lag)
    progress = blocking(admin.GroupAdmin.progress)
    why = blocking(admin.GroupAdmin.why)
    explain = blocking(admin.GroupAdmin.explain)
    lags = blocking(admin.GroupAdmin.lags)
    topic_lags = blocking(admin.GroupAdmin.topic_lags)
    create = blocking(admin.GroupAdmin.create)
    delete = blocking(admin.GroupAdmin.delete)
    plan_to_time = blocking(admin.GroupAdmin.plan_to_time)
    plan_to_first = blocking(admin.GroupAdmin.plan_to_first)
    plan_to_last = blocking(admin.GroupAdmin.plan_to_last)
    plan = blocking(admin.GroupAdmin.plan)
    move = blocking(admin.GroupAdmin.move)
    clone = blocking(admin.GroupAdmin.clone)


class MessageAdmin(_Part[admin.MessageAdmin]):
    """See :class:`orbitmq.admin.MessageAdmin`."""

    get = blocking(admin.MessageAdmin.get)
    find = blocking(admin.MessageAdmin.find)
    trace = blocking(admin.MessageAdmin.trace)
    consume = blocking(admin.MessageAdmin.consume)
    by_unique_id = blocking(admin.MessageAdmin.by_unique_id)


class DeadLetterAdmin(_Part[admin.DeadLetterAdmin]):
    """See :class:`orbitmq.admin.DeadLetterAdmin`."""

    list = blocking(admin.DeadLetterAdmin.list)
    show = blocking(admin.DeadLetterAdmin.show)
    redrive = blocking(admin.DeadLetterAdmin.redrive)
    redrives = blocking(admin.DeadLetterAdmin.redrives)
    pause = blocking(admin.DeadLetterAdmin.pause)
    resume = blocking(admin.DeadLetterAdmin.resume)
    stop = blocking(admin.DeadLetterAdmin.stop)


class TimerAdmin(_Part[admin.TimerAdmin]):
    """See :class:`orbitmq.admin.TimerAdmin`."""

    list = blocking(admin.TimerAdmin.list)
    show = blocking(admin.TimerAdmin.show)
    cancel = blocking(admin.TimerAdmin.cancel)


class DefinitionAdmin(_Part[admin.DefinitionAdmin]):
    """See :class:`orbitmq.admin.DefinitionAdmin`."""

    export = blocking(admin.DefinitionAdmin.export)
    plan = blocking(admin.DefinitionAdmin.plan)
    make = blocking(admin.DefinitionAdmin.make)


class AccessAdmin(_Part[admin.AccessAdmin]):
    """See :class:`orbitmq.admin.AccessAdmin`."""

    users = blocking(admin.AccessAdmin.users)
    create_user = blocking(admin.AccessAdmin.create_user)
    change_user = blocking(admin.AccessAdmin.change_user)
    delete_user = blocking(admin.AccessAdmin.delete_user)
    rules = blocking(admin.AccessAdmin.rules)
    set_rule = blocking(admin.AccessAdmin.set_rule)
    delete_rules = blocking(admin.AccessAdmin.delete_rules)
    test = blocking(admin.AccessAdmin.test)
    refusals = blocking(admin.AccessAdmin.refusals)


class QuotaAdmin(_Part[admin.QuotaAdmin]):
    """See :class:`orbitmq.admin.QuotaAdmin`."""

    list = blocking(admin.QuotaAdmin.list)
    set = blocking(admin.QuotaAdmin.set)
    delete = blocking(admin.QuotaAdmin.delete)


class Admin(BlockingClient[admin.Admin]):
    """Operations on the cluster behind some name servers; see :class:`orbitmq.admin.Admin`.

    Takes the same arguments, has the same parts, and raises the same errors::

        with Admin("127.0.0.1:9876") as admin:
            admin.topics.create("flights", queues=8)
            for queue in admin.topics.status("flights").whole():
                print(queue.queue, queue.count)
    """

    @made_as(admin.Admin)
    def __init__(self, *args: Any, **options: Any) -> None:
        core = admin.Admin(*args, **options)
        super().__init__(core, "admin")
        self.brokers = BrokerAdmin(core.brokers, self._running)
        self.clients = ClientAdmin(core.clients, self._running)
        self.topics = TopicAdmin(core.topics, self._running)
        self.groups = GroupAdmin(core.groups, self._running)
        self.messages = MessageAdmin(core.messages, self._running)
        self.dead_letters = DeadLetterAdmin(core.dead_letters, self._running)
        self.timers = TimerAdmin(core.timers, self._running)
        self.definitions = DefinitionAdmin(core.definitions, self._running)
        self.access = AccessAdmin(core.access, self._running)
        self.quotas = QuotaAdmin(core.quotas, self._running)
