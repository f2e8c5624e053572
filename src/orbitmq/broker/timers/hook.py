"""The append hook that sends messages with a timer to the timer topic."""

from __future__ import annotations

from collections.abc import Mapping

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.timers import forms
from orbitmq.runtime.seam import Clock
from orbitmq.store import NewMessage


class TimerHook:
    """Runs after the hooks of transactions and delay levels, which win over a timer."""

    def __init__(self, clock: Clock, config: BrokerConfig) -> None:
        self._clock = clock
        self._config = config

    def timed(self, message: NewMessage, properties: Mapping[str, str]) -> NewMessage:
        """The message to store, see :func:`forms.timed`.

        Raises:
            RemotingError: as :func:`forms.timed`.
        """
        if not forms.requests_timer(properties):
            return message
        return forms.timed(message, properties, self._clock.now_ms(), self._config)
