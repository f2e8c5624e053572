"""Messages of gRPC clients on their way into the broker: limits, properties, bodies."""

from __future__ import annotations

import gzip
import re
import zlib
from typing import Any

import pytest
from tests.conversation.grpc_rpc import message

from orbitmq.broker.messaging.sending import SendRequest
from orbitmq.gateway import schema
from orbitmq.gateway.incoming import MAX_USER_BYTES, send_request
from orbitmq.gateway.messages import duration, timestamp
from orbitmq.gateway.schema import Encoding, MessageType
from orbitmq.gateway.status import Code, RefusalError
from orbitmq.message import sysflag
from orbitmq.wire.bodies.topic import TopicConfig

NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000
LIMIT = 4 * 1024 * 1024
MIXED = {"message.type": "MIXED"}


def stored(sent: schema.Message, attributes: dict[str, str] | None = None, queues: int = 8) -> SendRequest:
    topic = TopicConfig("T", queues, queues, attributes=MIXED if attributes is None else attributes)
    return send_request(
        sent, topic, now_ms=NOW_MS, client="10.0.0.7:5000", body_limit=LIMIT, max_delay_ms=3 * DAY_MS
    )


def refused(sent: schema.Message, attributes: dict[str, str] | None = None) -> RefusalError:
    with pytest.raises(RefusalError) as caught:
        stored(sent, attributes)
    return caught.value


@pytest.mark.behaviour("GW-18")
def test_properties_are_those_of_apaches_proxy() -> None:
    request = stored(
        message(
            b"body",
            id="01ABC",
            properties={"colour": "red"},
            tag="tag",
            keys=["k1", "k2"],
            message_group="orders-7",
            trace_context="00-ab-cd-01",
            born_timestamp=timestamp(NOW_MS - 5),
            born_host="client.example",
        )
    )
    assert request.properties == {
        "colour": "red",
        "TAGS": "tag",
        "KEYS": "k1 k2",
        "UNIQ_KEY": "01ABC",
        "RECONSUME_TIME": "0",
        "PGROUP": "T",
        "__SHARDINGKEY": "orders-7",
        "TRACE_CONTEXT": "00-ab-cd-01",
        "__BORNHOST": "client.example",
        "BORN_TIMESTAMP": str(NOW_MS - 5),
    }
    assert (request.born_timestamp, request.producer_group, request.sys_flag) == (NOW_MS - 5, "T", 0)
    plain = stored(message(b"body", id="1"))
    assert plain.properties == {
        "UNIQ_KEY": "1",
        "RECONSUME_TIME": "0",
        "PGROUP": "T",
        "__BORNHOST": "10.0.0.7:5000",
        "BORN_TIMESTAMP": str(NOW_MS),
    }
    assert plain.queue_id == -1


@pytest.mark.behaviour("GW-31")
def test_a_half_message_is_marked_as_one() -> None:
    half = stored(message(id="1", message_type=MessageType.TRANSACTION)).properties
    assert (half["TRAN_MSG"], half["PGROUP"], "CHECK_IMMUNITY_TIME_IN_SECONDS" in half) == (
        "true",
        "T",
        False,
    )
    for asked_ms, seconds in ((0, "0"), (1, "1"), (20_000, "20"), (20_001, "21"), (3_600_000, "3600")):
        recovery = duration(asked_ms)
        half = stored(
            message(message_type=MessageType.TRANSACTION, orphaned_transaction_recovery_duration=recovery)
        ).properties
        assert half["CHECK_IMMUNITY_TIME_IN_SECONDS"] == seconds
    # Other messages do not get these properties.
    plain = stored(message(orphaned_transaction_recovery_duration=duration(20_000))).properties
    assert not {"TRAN_MSG", "CHECK_IMMUNITY_TIME_IN_SECONDS"} & plain.keys()


@pytest.mark.behaviour("GW-17")
def test_a_message_group_chooses_the_queue() -> None:
    chosen = {stored(message(message_group=f"g-{number}")).queue_id for number in range(100)}
    assert chosen == set(range(8))


@pytest.mark.behaviour("GW-19")
def test_gzip_is_unpacked_and_zlib_stays_what_remoting_consumers_read() -> None:
    body = b"abc" * 1000
    packed = message(gzip.compress(body), body_encoding=Encoding.GZIP)
    assert (stored(packed).body, stored(packed).sys_flag) == (body, 0)
    deflated = message(zlib.compress(body), body_encoding=Encoding.GZIP)
    assert (stored(deflated).body, stored(deflated).sys_flag) == (zlib.compress(body), sysflag.COMPRESSED)
    # With the encoding IDENTITY the compressed bytes are the user's own.
    own = message(gzip.compress(body), body_encoding=Encoding.IDENTITY)
    assert stored(own).body == gzip.compress(body)


@pytest.mark.behaviour("GW-19")
@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"no packing at all", Code.MESSAGE_CORRUPTED),
        (gzip.compress(b"abc" * 1000)[:-9], Code.MESSAGE_CORRUPTED),
        (zlib.compress(b"abc" * 1000)[:-9], Code.MESSAGE_CORRUPTED),
        (b"\x1f\x8b" + b"\xff" * 50, Code.MESSAGE_CORRUPTED),
        (gzip.compress(b""), Code.MESSAGE_BODY_EMPTY),
        (gzip.compress(bytes(LIMIT + 1)), Code.MESSAGE_BODY_TOO_LARGE),
    ],
)
def test_a_packed_body_that_cannot_be_stored_is_refused(body: bytes, code: Code) -> None:
    assert refused(message(body, body_encoding=Encoding.GZIP)).code is code


def of_size(size: int) -> dict[str, str]:
    return {"p": "x" * (size - 1)}


BAD: list[tuple[dict[str, Any], Code, str]] = [
    ({"body": b""}, Code.MESSAGE_BODY_EMPTY, "empty"),
    ({"body": bytes(LIMIT + 1)}, Code.MESSAGE_BODY_TOO_LARGE, "4194305 bytes, limit maxMessageSize 4194304"),
    ({"properties": {f"p{n}": "v" for n in range(129)}}, Code.MESSAGE_PROPERTIES_TOO_LARGE, "129.*limit 128"),
    ({"properties": of_size(MAX_USER_BYTES + 1)}, Code.MESSAGE_PROPERTIES_TOO_LARGE, "16385 bytes.*16384"),
    ({"properties": of_size(MAX_USER_BYTES - 3), "tag": "four"}, Code.MESSAGE_PROPERTIES_TOO_LARGE, "16385"),
    ({"born_host": "h" * 32_000}, Code.MESSAGE_PROPERTIES_TOO_LARGE, "limit 31743"),
    ({"properties": {"KEYS": "v"}}, Code.ILLEGAL_MESSAGE_PROPERTY_KEY, "'KEYS'.*own"),
    ({"properties": {"__SHARDINGKEY": "v"}}, Code.ILLEGAL_MESSAGE_PROPERTY_KEY, "own"),
    ({"properties": {"__RMQ.TRANSIENT.X": "v"}}, Code.ILLEGAL_MESSAGE_PROPERTY_KEY, "own"),
    ({"properties": {"": "v"}}, Code.ILLEGAL_MESSAGE_PROPERTY_KEY, "empty"),
    ({"properties": {"name": ""}}, Code.ILLEGAL_MESSAGE_PROPERTY_KEY, "'name'.*empty"),
    ({"properties": {"na\x01me": "v"}}, Code.ILLEGAL_MESSAGE_PROPERTY_KEY, "control"),
    ({"properties": {"name": "a\x02b"}}, Code.ILLEGAL_MESSAGE_PROPERTY_KEY, "control"),
    ({"tag": "a|b"}, Code.ILLEGAL_MESSAGE_TAG, r"'a\|b'"),
    ({"tag": "  "}, Code.ILLEGAL_MESSAGE_TAG, "blank"),
    ({"tag": "a\nb"}, Code.ILLEGAL_MESSAGE_TAG, "control"),
    ({"keys": ["ok", " "]}, Code.ILLEGAL_MESSAGE_KEY, "blank"),
    ({"keys": ["a\x00"]}, Code.ILLEGAL_MESSAGE_KEY, "control"),
    ({"message_group": " "}, Code.ILLEGAL_MESSAGE_GROUP, "blank"),
    ({"message_group": "é" * 32}, Code.ILLEGAL_MESSAGE_GROUP, "64 bytes, limit 63"),
    ({"id": ""}, Code.ILLEGAL_MESSAGE_ID, "empty"),
    ({"id": "a\x01"}, Code.ILLEGAL_MESSAGE_ID, "control"),
    ({"trace_context": "a\x02"}, Code.BAD_REQUEST, "trace_context"),
    (
        {"delivery_timestamp": timestamp(NOW_MS + 3 * DAY_MS + 1000)},
        Code.ILLEGAL_DELIVERY_TIME,
        "259201 s from now, limit timerMaxDelaySec 259200",
    ),
    ({"message_type": MessageType.FIFO}, Code.ILLEGAL_MESSAGE_GROUP, "no message_group"),
    ({"message_type": MessageType.DELAY}, Code.ILLEGAL_DELIVERY_TIME, "no delivery_timestamp"),
    ({"message_type": MessageType.PRIORITY}, Code.UNSUPPORTED, "PRIORITY"),
    ({"message_type": MessageType.LITE}, Code.UNSUPPORTED, "LITE"),
    ({"lite_topic": "x"}, Code.UNSUPPORTED, "lite"),
    (
        {
            "message_type": MessageType.TRANSACTION,
            "orphaned_transaction_recovery_duration": duration(3_601_000),
        },
        Code.BAD_REQUEST,
        "orphaned_transaction_recovery_duration 3601000 ms, limits 0 to 3600000 ms",
    ),
]


@pytest.mark.behaviour("GW-27")
@pytest.mark.parametrize(("values", "code", "text"), BAD)
def test_what_is_out_of_its_limit_is_named(values: dict[str, Any], code: Code, text: str) -> None:
    error = refused(message(**values))
    assert error.code is code
    assert re.search(text, error.message), error.message


@pytest.mark.behaviour("GW-27")
def test_what_is_just_within_its_limit_is_stored() -> None:
    stored(message(bytes(LIMIT)))
    stored(message(properties={f"p{n}": "v" for n in range(128)}))
    stored(message(properties=of_size(MAX_USER_BYTES)))
    stored(message(message_group="é" * 31 + "x"))
    assert stored(message(delivery_timestamp=timestamp(NOW_MS + 3 * DAY_MS))).properties["TIMER_DELIVER_MS"]


@pytest.mark.behaviour("GW-29")
@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("NORMAL", {}),
        ("FIFO", {"message_group": "g"}),
        ("DELAY", {"delivery_timestamp": timestamp(NOW_MS + 1000)}),
        ("TRANSACTION", {"message_type": MessageType.TRANSACTION}),
    ],
)
def test_a_topic_takes_messages_of_its_type(kind: str, fields: dict[str, Any]) -> None:
    for of_topic in ("NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED", "UNSPECIFIED", "PRIORITY", ""):
        attributes = {"message.type": of_topic} if of_topic else {}
        takes = {"NORMAL": of_topic not in ("FIFO", "DELAY", "TRANSACTION")}.get(kind, of_topic == kind)
        if takes or of_topic == "MIXED":
            assert stored(message(**fields), attributes).body == b"hello"
            continue
        error = refused(message(**fields), attributes)
        assert error.code is Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
        assert f"orbitmq topic create T --attribute message.type={kind}" in error.message
