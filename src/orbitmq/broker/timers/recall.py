"""Taking back a message that waits for its time (RecallMessageProcessor)."""

from __future__ import annotations

import re

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.messaging.append import MessageAppend
from orbitmq.broker.metadata.topics import TopicConfigs
from orbitmq.broker.role import RoleState
from orbitmq.broker.timers import forms
from orbitmq.broker.timers.forms import Timer
from orbitmq.broker.timers.pending import Found
from orbitmq.broker.timers.service import TimerService
from orbitmq.runtime.seam import Clock
from orbitmq.store import PutStatus, StoreClosedError
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.errors import HeaderError, RemotingError
from orbitmq.wire.recall_handle import RecallHandle

_NUMBER = re.compile(r"[0-9]{1,18}", re.ASCII)


class Recall:
    """Puts a recall into the timer topic; it takes effect when the slot of the recalled message begins.

    Apache's broker answers success to every well-formed handle. This broker checks that the message waits,
    unless ``recallUnknownMessages`` is true.
    """

    def __init__(
        self,
        clock: Clock,
        config: BrokerConfig,
        role: RoleState,
        topics: TopicConfigs,
        append: MessageAppend,
        timers: TimerService,
    ) -> None:
        self._clock = clock
        self._config = config
        self._role = role
        self._topics = topics
        self._append = append
        self._timers = timers

    async def recall(self, topic: str, handle: str, group: str, born_host: tuple[str, int]) -> str:
        """Take back the message that ``handle`` names; returns its unique id when the recall is stored.

        Raises:
            RemotingError: NO_PERMISSION, recalls are off; SLAVE_NOT_AVAILABLE, another broker may deliver the
                message; ILLEGAL_OPERATION, no message with this handle waits here; SYSTEM_ERROR,
                too few replicas are in sync, or whether the message is taken back is uncertain.
        """
        self._check(topic)
        since_ms = self._role.since_ms
        timer = self._wanted(topic, handle)
        found = self._timers.find(timer)
        if found is Found.MISSING and not self._config.recall_unknown_messages:
            raise _illegal(f"no message {timer.unique_id} of topic {topic} waits for that time")
        if found is Found.RECALLED and not self._config.recall_unknown_messages:
            raise _illegal(f"message {timer.unique_id} was recalled already")
        # With too few replicas in sync, ``settled`` would only wait for this disk.
        self._append.admit()
        with_topic = self._config.append_topic_for_timer_delete_key
        message = forms.recall(timer, group, self._clock.now_ms(), born_host, with_topic=with_topic)
        try:
            status = await self._append.settled(self._append.put_many([message]))
        except StoreClosedError as error:
            raise RemotingError(
                ResponseCode.SYSTEM_ERROR, f"recall failed, execute error: {error}"
            ) from error
        if status is not PutStatus.OK:
            # Apache's broker answers success even when a slave that acts next would deliver the message.
            raise RemotingError(
                ResponseCode.SYSTEM_ERROR,
                f"recall failed, it is not as safe as this broker promises: {status.value}",
            )
        if not self._role.leads or self._role.since_ms != since_ms:
            raise RemotingError(
                ResponseCode.SYSTEM_ERROR,
                "recall failed, it is stored, and another broker may have delivered the message meanwhile",
            )
        return timer.unique_id

    def _check(self, topic: str) -> None:
        if not self._config.recall_message_enable:
            raise RemotingError(
                ResponseCode.NO_PERMISSION,
                "recall failed, operation is forbidden: recallMessageEnable is false at broker "
                f"{self._config.broker_name}",
            )
        if not (self._role.takes_messages and self._role.leads):
            # A slave that acts may have handed the message to the master of another group.
            right = " and has no right to lead" if self._role.takes_messages else ""
            raise RemotingError(
                ResponseCode.SLAVE_NOT_AVAILABLE,
                f"recall failed, broker service not available: it is {self._role.role.value}{right}",
            )
        if self._topics.get(topic) is None:
            raise RemotingError(ResponseCode.TOPIC_NOT_EXIST, f"recall failed, the topic[{topic}] not exist")

    def _wanted(self, topic: str, text: str) -> Timer:
        try:
            handle = RecallHandle.decode(text)
        except HeaderError as error:
            raise _illegal(f"recall handle is invalid: {error}") from error
        if handle.topic != topic:
            raise _illegal(f"topic not match: the handle is of topic {handle.topic[:128]!r}")
        if handle.broker_name != self._config.broker_name:
            raise _illegal(f"broker service not available: this is not broker {handle.broker_name[:128]!r}")
        at = int(handle.timestamp) if _NUMBER.fullmatch(handle.timestamp) else -1
        left_ms = at - self._clock.now_ms()
        if not 0 < left_ms < self._config.timer_max_delay_s * 1000:
            raise _illegal(
                "timestamp invalid: its message "
                + ("was delivered" if left_ms <= 0 else "is further away than timerMaxDelaySec")
            )
        out_ms = forms.slot_ms(at, self._config.timer_precision_ms)
        return Timer(out_ms, out_ms + 1, topic, handle.message_id)


def _illegal(problem: str) -> RemotingError:
    return RemotingError(ResponseCode.ILLEGAL_OPERATION, f"recall failed, {problem}")
