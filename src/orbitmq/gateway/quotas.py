"""The broker's quotas for gRPC clients: limits for the messages that their calls send and receive.

The connection of a client over its quota is not read for a while, as with the remoting protocol. Sends that
have a quota are never plain: they take the ordinary path, on which each call is counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import cast

from orbitmq.broker.quotas.buckets import Key
from orbitmq.broker.quotas.meter import Meter
from orbitmq.gateway import schema
from orbitmq.gateway.call import Call
from orbitmq.gateway.caller import Caller
from orbitmq.gateway.rights import host_of


class CallQuotas:
    """Counts messages of gRPC calls against the quotas.

    Args:
        checked: whether keys prove the user of a call; if not, users' quotas do not count.
        slowed: for how many seconds new connections from a host are not read after wrong keys.
    """

    def __init__(self, meter: Meter, checked: Callable[[], bool], slowed: Callable[[str], float]) -> None:
        self._meter = meter
        self._checked = checked
        self._slowed = slowed

    def limits(self, host: str) -> bool:
        """Whether an address has a quota."""
        return bool(self._meter.quotas) and Key("address", host) in self._meter.quotas

    def limits_topic(self, name: str) -> bool:
        """Whether a topic has a quota."""
        return bool(self._meter.quotas) and Key("topic", name) in self._meter.quotas

    def pause_of(self, host: str) -> float:
        """For how many seconds a new connection from this host must not be read."""
        own_s = self._meter.use([Key("address", host)], 0, 0, out=False) if self.limits(host) else 0.0
        return max(own_s, self._slowed(host))

    def count(self, call: Call, caller: Caller, request: object) -> None:
        """Count a call that was not refused."""
        if not self._meter.quotas:
            return
        sizes: Counter[str] = Counter()
        numbers: Counter[str] = Counter()
        if call.method == "SendMessage":
            for message in cast("schema.SendMessageRequest", request).messages:
                sizes[message.topic.name] += len(message.body)
                numbers[message.topic.name] += 1
        self._count(call, self._keys_of(caller), sizes.total(), numbers.total(), out=False)
        for topic, number in numbers.items():
            self._count(call, [Key("topic", topic)], sizes[topic], number, out=False)

    def delivered(self, call: Call, caller: Caller, topic: str, size: int) -> None:
        """Count a message of ``size`` bytes that is delivered to a client."""
        if self._meter.quotas:
            self._count(call, [*self._keys_of(caller), Key("topic", topic)], size, 1, out=True)

    def _keys_of(self, caller: Caller) -> list[Key]:
        found = [Key("address", host_of(caller.address))]
        if self._checked():
            found.append(Key("user", caller.user))
        return found

    def _count(self, call: Call, keys: list[Key], size: int, messages: int, *, out: bool) -> None:
        pause_s = self._meter.use(keys, size, messages, out=out)
        if pause_s:
            call.rest(pause_s)
