"""The properties that a message keeps when it is sent again as a new one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as sf

from orbitmq.message import property_names
from orbitmq.spark.write.task import SPARK_ID

if TYPE_CHECKING:
    from pyspark.sql import Column

# Properties of a replayed message with the id, times and place of the original; times in ms since 1970.
RUN = "REPLAY_RUN"
FROM = "REPLAY_FROM"  # topic/broker/queue/offset
MESSAGE_ID = "REPLAY_MESSAGE_ID"
BORN_TIME = "REPLAY_BORN_TIME"
STORE_TIME = "REPLAY_STORE_TIME"
MARKS = (RUN, FROM, MESSAGE_ID, BORN_TIME, STORE_TIME)

# Properties that belong to the message itself; RocketMQ's other properties belong to the delivery of the
# original message.
_OF_THE_MESSAGE = {property_names.SHARDING_KEY, property_names.BUYER_ID, property_names.INSTANCE_ID}
_WITH_A_MEANING = {
    value
    for name, value in vars(property_names).items()
    if name.isupper() and isinstance(value, str) and name != "KEY_SEPARATOR"
}
LEFT_OUT = sorted((_WITH_A_MEANING - _OF_THE_MESSAGE) | {SPARK_ID, *MARKS})


def kept_properties() -> Column:
    """The properties in the column ``properties`` that the sender set."""
    left_out = sf.array(*(sf.lit(name) for name in LEFT_OUT))
    return sf.map_filter("properties", lambda name, _: ~sf.array_contains(left_out, name))
