"""The plain way takes only requests that protobuf parses and the ordinary way would store."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.queue_slots import add_slot

from orbitmq.gateway import schema
from orbitmq.gateway.call import CallError
from orbitmq.gateway.events import Arrived, StreamOpened
from orbitmq.gateway.framing import prefixed
from orbitmq.gateway.http2 import Http2Connection
from orbitmq.gateway.incoming import RESERVED, send_request
from orbitmq.gateway.messages import new, parse, timestamp
from orbitmq.gateway.plain_acks import PlainAcks
from orbitmq.gateway.plain_reader import PlainReader
from orbitmq.gateway.plain_sends import PlainSends, PlainTopic
from orbitmq.gateway.requests import SERVICE
from orbitmq.gateway.schema import Encoding, MessageType
from orbitmq.gateway.status import RefusalError
from orbitmq.gateway.unary import ok
from orbitmq.message.properties import decode_properties, encode_properties
from orbitmq.message.record import decode_record
from orbitmq.store.log.append import pack_host
from orbitmq.store.log.appender import Appender
from orbitmq.store.queues import layout
from orbitmq.wire.bodies.topic import TopicConfig

SEGMENT = 1 << 20
BORN_MS = 1_700_000_000_123
HOST = ("127.0.0.1", 4711)
ADDED = b"MSG_REGION\x01R\x02TRACE_ON\x01true\x02CLUSTER\x01C\x02"
BODY_LIMIT = 2000
HEADERS = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", f"{SERVICE}SendMessage"),
    (":authority", "here"),
    ("content-type", "application/grpc"),
    ("x-mq-client-id", "client"),
]


class Bench:
    """The engine with a plain way to one topic, T, and a client."""

    def __init__(self) -> None:
        self.appender = Appender(1 << 17, 64, SEGMENT, pack_host(("10.1.2.3", 10911)))
        self.appender.now_ms = BORN_MS
        self.appender.start_batch(0, SEGMENT)
        self.slot = add_slot(self.appender, 0, 0)
        self.appender.set(self.slot, layout.Q_ID, 0)
        self.appender.prepare_tail(self.slot)
        self.seen: list[str] = []
        self.sends = PlainSends(
            self.appender,
            lambda name: PlainTopic(name, [self.slot]) if name == b"T" else None,
            self.make_room,
            lambda _queues: 0,
            reserved=RESERVED,
            head=new(schema.SendMessageResponse, status=ok()).SerializeToString(),
            entry=new(schema.SendResultEntry, status=ok()).SerializeToString(),
        )
        self.sends.added, self.sends.max_body = ADDED, BODY_LIMIT
        self.plain = PlainReader(
            self.sends,
            PlainAcks(lambda *_: None, lambda *_: False, b"broker-a", head=b"", end=b""),
            self.seen.append,
            lambda headers: headers["authorization"] == "good",
            lambda value: int(value[:-1]),
        )
        self.engine = Http2Connection()
        self.client = H2Connection(H2Configuration(client_side=True))
        self.client.initiate_connection()
        self.stream = -1

    def make_room(self, reason: int, slot: int) -> bool:
        """Free the queue's ring, as if its entries were saved."""
        self.appender.set(slot, layout.Q_SAVED, self.appender.get(slot, layout.Q_NEXT))
        return reason == layout.TAIL_FULL

    def feed(self, *, room: int = 10) -> list[object]:
        """Let the engine read the client's bytes; returns its events except those of windows."""
        self.plain.begin(pack_host(HOST), b"127.0.0.1:4711", room)
        self.engine.plain = self.plain
        events = self.engine.receive(self.client.data_to_send(), 0.0)
        return [each for each in events if isinstance(each, StreamOpened | Arrived)]

    def call(self, request: bytes, headers: list[tuple[str, str]] = HEADERS) -> bytes | None:
        """The response of the plain way; ``None`` if the call took the ordinary one."""
        self.stream += 2
        self.client.send_headers(self.stream, headers)
        self.client.send_data(self.stream, prefixed(request), end_stream=True)
        events = self.feed()
        calls = self.plain.sent
        if calls is None:
            assert [type(each) for each in events] == [StreamOpened, Arrived]
            return None
        assert events == []
        assert (calls.streams, calls.timeouts_ms) == ([self.stream], [0])
        return calls.answers[0]


def request_of(**values: Any) -> bytes:
    return new(schema.SendMessageRequest, messages=[plain_message(**values)]).SerializeToString()


def plain_message(
    body: bytes = b"body", topic: str = "T", properties: dict[str, str] | None = None, **system: Any
) -> schema.Message:
    known = {"message_id": "id", "born_timestamp": timestamp(BORN_MS), "message_type": 1} | system
    return new(
        schema.Message,
        topic=new(schema.Resource, name=topic),
        user_properties=properties or {},
        system_properties=new(schema.SystemProperties, **known),
        body=body,
    )


def judged(bench: Bench, request: bytes) -> bool:
    """Whether the plain way took a request; its record and its response have to equal those of the ordinary
    way.
    """
    before = bench.appender.batch_used
    answer = bench.call(request)
    if answer is None:
        assert bench.appender.batch_used == before
        return False
    try:
        (message,) = parse(schema.SendMessageRequest, request).messages
        wanted = send_request(
            message,
            TopicConfig("T"),
            now_ms=BORN_MS,
            client="127.0.0.1:4711",
            body_limit=BODY_LIMIT,
            max_delay_ms=0,
        )
    except (CallError, RefusalError) as error:
        raise AssertionError(f"the plain way took what is refused: {error}") from error
    record = decode_record(bench.appender.batch, before)
    assert record.total_size == bench.appender.batch_used - before
    properties = encode_properties(wanted.properties) + ADDED
    if len(message.user_properties) > 1:
        # Protobuf does not define the order of a map's entries.
        assert decode_properties(record.properties) == decode_properties(properties)
        assert len(record.properties) == len(properties)
    else:
        assert record.properties == properties
    offset = bench.appender.get(bench.slot, layout.Q_NEXT) - 1
    assert record == replace(
        record,
        topic="T",
        body=wanted.body,
        queue_id=0,
        queue_offset=offset,
        flag=0,
        sys_flag=wanted.sys_flag,
        born_timestamp=wanted.born_timestamp,
        born_host=HOST,
        store_timestamp=BORN_MS,
        reconsume_times=0,
        prepared_transaction_offset=0,
    )
    assert wanted.queue_id == -1
    entry = new(
        schema.SendResultEntry, status=ok(), message_id=message.system_properties.message_id, offset=offset
    )
    wanted_answer = new(schema.SendMessageResponse, status=ok(), entries=[entry])
    assert answer == prefixed(wanted_answer.SerializeToString())
    bench.appender.start_batch(0, SEGMENT)
    return True


@pytest.mark.behaviour("GW-18")
def test_plain_messages_are_taken() -> None:
    bench = Bench()
    requests = [
        request_of(),
        request_of(message_type=MessageType.UNSPECIFIED, body_encoding=Encoding.IDENTITY, queue_id=3),
        request_of(tag="T1", keys=["k1", "k2"], born_host="host", trace_context="trace"),
        request_of(properties={"color": "red"}, body=bytes(range(256))),
        request_of(properties={f"p{number}": "v" * number for number in range(1, 17)}),
        request_of(body=b"x" * BODY_LIMIT, message_id="i" * 512),
    ]
    for request in requests * 3:
        assert judged(bench, request)
    assert bench.seen == ["client"] * (3 * len(requests))


UNUSUAL: dict[str, dict[str, Any]] = {
    "no body": {"body": b""},
    "body too long": {"body": b"x" * (BODY_LIMIT + 1)},
    "gzip": {"body_encoding": Encoding.GZIP},
    "another topic": {"topic": "U"},
    "fifo": {"message_group": "g"},
    "an empty group": {"message_group": ""},
    "delay": {"delivery_timestamp": timestamp(BORN_MS)},
    "transaction": {"message_type": MessageType.TRANSACTION},
    "priority": {"priority": 1},
    "no id": {"message_id": ""},
    "blank id": {"message_id": " "},
    "blank tag": {"tag": " "},
    "tag with a bar": {"tag": "a|b"},
    "tag beyond ASCII": {"tag": "é"},
    "control in a key": {"keys": ["a", "b\x01"]},
    "empty key": {"keys": [""]},
    "a reserved name": {"properties": {"KEYS": "k"}},
    "a transient name": {"properties": {"__RMQ.TRANSIENT.x": "k"}},
    "an empty value": {"properties": {"a": ""}},
    "an empty name": {"properties": {"": "a"}},
    "a separator": {"properties": {"a": "b\x02"}},
    "many properties": {"properties": {f"p{number}": "v" for number in range(17)}},
    "long properties": {"properties": {f"p{number}": "v" * 1000 for number in range(9)}},
    "no time": {"born_timestamp": timestamp(0)},
    "delivered before": {"delivery_attempt": 1},
}


@pytest.mark.behaviour("GW-18")
@pytest.mark.parametrize("name", UNUSUAL)
def test_an_unusual_message_takes_the_ordinary_way(name: str) -> None:
    bench = Bench()
    assert not judged(bench, request_of(**UNUSUAL[name]))
    assert judged(bench, request_of())


@pytest.mark.behaviour("GW-18")
def test_several_messages_and_bytes_behind_one_take_the_ordinary_way() -> None:
    bench = Bench()
    several = new(schema.SendMessageRequest, messages=[plain_message(), plain_message()])
    for request in (b"", several.SerializeToString(), request_of() + b"\x12\0", request_of()[:-1]):
        assert not judged(bench, request)


HEADER_CASES: dict[str, tuple[list[tuple[str, str]], bool]] = {
    "as they are": ([], True),
    "a time and a key": ([("grpc-timeout", "5m"), ("authorization", "good")], True),
    "identity": ([("grpc-encoding", "identity"), ("x-mq-language", "JAVA")], True),
    "an unknown compression": ([("grpc-encoding", "zip")], False),
    "a key that is refused": ([("authorization", "bad")], False),
    "no time at all": ([("grpc-timeout", "0m")], False),
    "a second client": ([("x-mq-client-id", "other")], False),
}


@pytest.mark.behaviour("GW-18")
@pytest.mark.parametrize("name", HEADER_CASES)
def test_headers_decide_before_the_message(name: str) -> None:
    more, taken = HEADER_CASES[name]
    bench = Bench()
    bench.client.send_headers(1, HEADERS + more)
    bench.client.send_data(1, prefixed(request_of()), end_stream=True)
    events = bench.feed()
    calls = bench.plain.sent
    assert (calls is None, bool(events)) == (not taken, not taken)
    if calls is not None:
        assert (calls.streams, calls.timeouts_ms) == ([1], [5] if "grpc-timeout" in dict(more) else [0])
    without = [pair for pair in HEADERS if pair[0] != "x-mq-client-id"]
    assert Bench().call(request_of(), without) is None
    assert Bench().call(request_of(), [*without, ("x-mq-client-id", "c" * 256)]) is None
    assert Bench().call(request_of(), [(n, v.replace("Send", "Ack")) for n, v in HEADERS]) is None


@pytest.mark.behaviour("GW-18")
def test_a_call_that_does_not_come_whole_takes_the_ordinary_way() -> None:
    data = prefixed(request_of())
    bench = Bench()
    for cut in range(len(data)):
        bench.stream += 2
        stream = bench.stream
        bench.client.send_headers(stream, HEADERS)
        first = bench.feed() if cut % 2 else []
        bench.client.send_data(stream, data[:cut])
        bench.client.send_data(stream, data[cut:], end_stream=True)
        events = first + bench.feed()
        assert [type(each) for each in events] == [StreamOpened, Arrived, Arrived]
        assert b"".join(each.data for each in events if isinstance(each, Arrived)) == data
    bench.client.send_headers(bench.stream + 2, HEADERS)
    bench.client.reset_stream(bench.stream + 2)
    assert bench.feed() == []
    assert bench.plain.sent is None
    assert bench.appender.batch_used == 0


@pytest.mark.behaviour("GW-05")
def test_no_more_calls_are_taken_than_there_is_room() -> None:
    bench = Bench()
    for stream in (1, 3, 5):
        bench.client.send_headers(stream, HEADERS)
        bench.client.send_data(stream, prefixed(request_of()), end_stream=True)
    assert [each.stream for each in bench.feed(room=2) if isinstance(each, StreamOpened)] == [5]
    assert bench.plain.sent is not None
    assert bench.plain.sent.streams == [1, 3]
    assert bench.feed(room=0) == []


TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    ["", " ", "a", "KEYS", "|", "\x01", "__x", "ü"]
)
PARTS: dict[str, st.SearchStrategy[Any]] = {
    "tag": TEXTS,
    "keys": st.lists(TEXTS, max_size=3),
    "message_id": TEXTS,
    "body_encoding": st.integers(0, 4),
    "message_type": st.integers(0, 7),
    "born_host": TEXTS,
    "queue_id": st.integers(-1, 300),
    "queue_offset": st.integers(0, 3),
    "delivery_attempt": st.integers(0, 2),
    "message_group": TEXTS,
    "trace_context": TEXTS,
    "lite_topic": TEXTS,
    "born_timestamp": st.builds(
        lambda seconds, nanos: new(schema.Timestamp, seconds=seconds, nanos=nanos),
        st.integers(-(2**63), 2**63 - 1) | st.integers(0, 2**33),
        st.integers(-(2**31), 2**31 - 1) | st.integers(0, 999_999_999),
    ),
}


@pytest.mark.behaviour("GW-18")
@settings(max_examples=300)
@given(data=st.data())
def test_the_plain_way_reads_what_protobuf_reads(data: st.DataObject) -> None:
    used = data.draw(st.sets(st.sampled_from(sorted(PARTS)), max_size=4))
    values = {name: data.draw(PARTS[name], label=name) for name in sorted(used)}
    request = request_of(
        body=data.draw(st.binary(max_size=40)),
        properties=data.draw(st.dictionaries(TEXTS, TEXTS, max_size=3)),
        **values,
    )
    judged(Bench(), request)
    # Some of its bytes are replaced, removed or doubled.
    changed = bytearray(request)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(changed) - 1))
        end = min(len(changed), at + data.draw(st.integers(0, 8)))
        changed[at:end] = data.draw(st.binary(max_size=2) | st.just(bytes(changed[at:end]) * 2))
        if not changed:
            return
    judged(Bench(), bytes(changed))
