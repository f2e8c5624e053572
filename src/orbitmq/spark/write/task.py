"""The ids that a writer gives to messages, and the parsing of ids. Does no I/O."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from orbitmq.message.model import MessageQueue
from orbitmq.spark.errors import SinkStateError

# The property with the whole id in readable form: query, batch, partition, attempt, row, digest of the row.
SPARK_ID = "ORBITMQ_SPARK_ID"
# The partition number of messages that the driver sends when it reconciles a batch.
DRIVER = -1

# The offsets at which the search for messages of earlier attempts begins, in all queues that one of the
# attempts knew; ``None`` for the first message.
Since: TypeAlias = Mapping[MessageQueue, int | None]


@dataclass(frozen=True, slots=True)
class TaskId:
    """One attempt of one task of one batch. Together with a row's number it identifies a message uniquely.

    Attributes:
        run: the run of the query, a hexadecimal number that grows with each start (:func:`new_run`).
        attempt: the number of the task's attempt, unique in its run.
    """

    query_id: str
    batch_id: int
    partition: int
    run: str
    attempt: int

    @property
    def run_number(self) -> int:
        """The run as a number; later runs have higher numbers, by the drivers' clocks."""
        return int(self.run, 16)

    @property
    def text(self) -> str:
        """The task's name in texts for people."""
        return f"{self.query_id}/{self.batch_id}/{self.partition}"

    @property
    def attempt_text(self) -> str:
        """The text of run and attempt."""
        return f"{self.run}.{self.attempt}"

    @property
    def key_prefix(self) -> bytes:
        """The first 16 characters of the UNIQ_KEY of all messages of this attempt."""
        text = f"{self.text}/{self.attempt_text}"
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest().upper().encode()

    @property
    def id_head(self) -> bytes:
        """The property with the id, up to but not including the row's number."""
        return f"{SPARK_ID}\x01{self.text}/{self.attempt_text}/".encode()


class StoredRow(NamedTuple):
    """A message that a writer has stored.

    Attributes:
        attempt: run and attempt, as :attr:`TaskId.attempt_text`.
        digest: the digest of the row's content.
    """

    partition: int
    attempt: str
    row: int
    digest: int

    @property
    def run(self) -> str:
        return self.attempt.partition(".")[0]


def new_run(now_ms: int, chance: int) -> str:
    """The name of a new run.

    Args:
        chance: 20 random bits, which distinguish runs of the same millisecond.
    """
    return f"{now_ms:011x}{chance:05x}"


def id_mark(query_id: str, batch_id: int) -> bytes:
    """The start of the id property in all messages of a batch; :func:`stored_row` reads what follows it."""
    return f"{SPARK_ID}\x01{query_id}/{batch_id}/".encode()


def stored_row(properties: bytes, mark: bytes) -> StoredRow | None:
    """The row of a message, from its properties; ``None`` if the message does not belong to the batch with
    this mark.

    Raises:
        SinkStateError: an earlier version of the format wrote the message, whose id has fewer fields.
    """
    at = properties.find(mark)
    if at < 0:
        return None
    at += len(mark)
    end = properties.find(b"\x02", at)
    text = properties[at : end if end >= 0 else len(properties)].decode()
    try:
        partition, attempt, row, digest = text.split("/")
        return StoredRow(int(partition), attempt, int(row), int(digest, 16))
    except ValueError:
        raise SinkStateError(
            f"message {mark.decode().partition(chr(1))[2]}{text} was written by an earlier version of this "
            f"format, whose batches only that version can finish"
        ) from None


def row_of_key(properties: bytes, key_prefix: bytes) -> int | None:
    """The number of the row whose message has these properties, if this attempt sent it."""
    at = properties.rfind(b"UNIQ_KEY\x01" + key_prefix)
    if at < 0:
        return None
    key = properties[at + 9 : at + 41]
    return int(key[16:20] + key[28:32], 16)


def unique_key(key_prefix: bytes, row: int) -> str:
    """The UNIQ_KEY of a row: 32 hex digits in RocketMQ's layout, as the encoder writes it."""
    return f"{key_prefix.decode()}{row >> 16:04X}00000000{row & 0xFFFF:04X}"
