"""The messages of a pull response, decoded in one go: the same as one by one, for all records."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from orbitmq.message.errors import RecordError
from orbitmq.message.model import ReceivedMessage, UnreadableMessage
from orbitmq.message.properties import encode_properties
from orbitmq.message.record import (
    Record,
    blank_record,
    encode_record,
    iter_records,
    readable,
    readable_messages,
)
from orbitmq.message.sysflag import COMPRESSED

FIELDS = (
    "topic", "flag", "properties", "broker_name", "queue_id", "queue_offset", "commit_log_offset",
    "store_size_bytes", "sys_flag", "body_crc", "born_timestamp_ms", "born_host", "store_timestamp_ms",
    "store_host", "reconsume_times", "prepared_transaction_offset", "offset_message_id", "message_id",
)  # fmt: skip
HOSTS = st.sampled_from([("127.0.0.1", 10911), ("::1", 1), ("255.1.2.3", 65535)])
RECORDS = st.builds(
    Record,
    topic=st.sampled_from(["t", "other", "é" * 10, "x" * 200]),
    body=st.binary(max_size=40),
    properties=st.dictionaries(st.sampled_from(["TAGS", "UNIQ_KEY", "k"]), st.text("ab", min_size=1)).map(
        encode_properties
    ),
    queue_id=st.integers(0, 2**31 - 1),
    flag=st.integers(-(2**31), 2**31 - 1),
    queue_offset=st.integers(0, 2**63 - 1),
    physical_offset=st.integers(0, 2**63 - 1),
    sys_flag=st.sampled_from([0, 4, 8, COMPRESSED]),
    born_timestamp=st.integers(0, 2**62),
    born_host=HOSTS,
    store_timestamp=st.integers(0, 2**62),
    store_host=HOSTS,
    reconsume_times=st.integers(0, 99),
    prepared_transaction_offset=st.integers(0, 2**62),
)


def told(message: ReceivedMessage) -> dict[str, Any]:
    found = {name: getattr(message, name) for name in FIELDS}
    found["body"] = message.stored_body if isinstance(message, UnreadableMessage) else message.body
    return found


def outcome(read: Callable[[], list[ReceivedMessage]]) -> Any:
    """The messages, or the text of the refusal."""
    try:
        return [told(message) for message in read()]
    except RecordError as error:
        return str(error)


@given(st.lists(RECORDS, max_size=6), st.booleans())
def test_in_one_go_is_the_same_as_one_by_one(records: list[Record], blank: bool) -> None:
    buffer = b"".join(map(encode_record, records)) + (blank_record(8) if blank else b"")
    alone = [readable(record, "a") for record in iter_records(buffer)]
    together = readable_messages(buffer, "a")
    assert [told(message) for message in together] == [told(message) for message in alone]
    assert [type(message) for message in together] == [type(message) for message in alone]


@given(st.lists(RECORDS, min_size=1, max_size=3), st.data())
def test_damaged_bytes_are_refused_alike(records: list[Record], data: Any) -> None:
    buffer = bytearray(b"".join(map(encode_record, records)))
    place = data.draw(st.integers(0, len(buffer) - 1))
    buffer[place] = data.draw(st.integers(0, 255))
    cut = bytes(buffer[: data.draw(st.integers(0, len(buffer)))])
    assert outcome(lambda: readable_messages(cut, "a")) == outcome(
        lambda: [readable(record, "a") for record in iter_records(cut)]
    )


@given(st.lists(RECORDS, max_size=4), st.integers(0, pickle.HIGHEST_PROTOCOL))
def test_received_messages_are_the_same_pickled_and_copied(records: list[Record], protocol: int) -> None:
    for message in readable_messages(b"".join(map(encode_record, records)), "b"):
        if protocol >= 2:
            assert told(pickle.loads(pickle.dumps(message, protocol))) == told(message)
        assert told(copy.copy(message)) == told(copy.deepcopy(message)) == told(message)


def test_what_was_unpacked_can_be_changed() -> None:
    (message,) = readable_messages(encode_record(Record("t", b"x", encode_properties({"k": "v"}))), "a")
    message.properties["k"] = "w"
    assert message.properties == {"k": "w"}
    message.properties = {"TAGS": "a"}
    assert message.tags == "a"
