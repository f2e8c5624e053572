"""What happens when messages of a read are gone, and how a hole looks as a row."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from orbitmq.message.model import MessageQueue


class Loss(Enum):
    """The option failOnDataLoss: the query fails, skips what is gone, or gives a row for each hole."""

    FAIL = "true"
    SKIP = "false"
    ROWS = "rows"


class Gap(NamedTuple):
    """Messages of a queue that are not there any more.

    Attributes:
        first: the first offset that is missing.
        lost: how many are missing from there on.
    """

    queue: MessageQueue
    first: int
    lost: int
