"""The stream between two brokers of OrbitMQ, without I/O: everything that they tell each other, in one order.

It runs on the HA port in place of RocketMQ's protocol once the master has said in its answer to
EXCHANGE_BROKER_HA_INFO (906) that it speaks it: RocketMQ ignores that field and never sends it.
"""

from __future__ import annotations

from enum import IntEnum


class Kind(IntEnum):
    """What a frame is.

    Attributes:
        HELLO: who the sender is, and what its log holds.
        PIECE: bytes of the log; without any: the master lives.
        ACK: how far the follower is, received and durable; again and again: it lives.
        STATE, STATE_ACK: changes of tables, and up to which one they are applied.
        TAKE_OVER, HAND_OVER: who does the master's work from now on.
    """

    HELLO = 1
    PIECE = 2
    ACK = 3
    STATE = 4
    STATE_ACK = 5
    TAKE_OVER = 6
    HAND_OVER = 7
