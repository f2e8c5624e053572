"""The plain way takes only handles that the ordinary way accepts, and their responses are equal."""

from __future__ import annotations

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.test_gateway_plain_sends import HEADERS

from orbitmq.gateway import receipts, schema
from orbitmq.gateway.call import CallError
from orbitmq.gateway.framing import prefixed
from orbitmq.gateway.http2 import Http2Connection
from orbitmq.gateway.messages import new, parse
from orbitmq.gateway.plain_acks import PlainAcks
from orbitmq.gateway.plain_reader import PlainReader
from orbitmq.gateway.plain_sends import PlainSends
from orbitmq.gateway.unary import ok
from orbitmq.store.log.append import pack_host
from orbitmq.store.log.appender import Appender

BROKER = "broker-a"
HANDLE = "17 1700000000123 60000 3 0 broker-a 5 19 4711"
ACK_HEADERS = [(name, value.replace("SendMessage", "AckMessage")) for name, value in HEADERS]


class Bench:
    """The engine with a plain way to topic T and group G, and a client."""

    def __init__(self) -> None:
        self.ends: list[tuple[int, int, int, int]] = []
        sends = PlainSends(
            Appender(1 << 12, 4, 1 << 12, pack_host(("10.1.2.3", 10911))),
            lambda _: None,
            lambda *_: False,
            lambda _: 0,
            reserved=frozenset(),
            head=b"",
            entry=b"",
        )
        acks = PlainAcks(
            lambda topic, group: "place" if (topic, group) == (b"T", b"G") else None,
            self.acknowledge,
            BROKER.encode(),
            head=new(schema.AckMessageResponse, status=ok()).SerializeToString(),
            end=new(schema.AckMessageResultEntry, status=ok()).SerializeToString(),
        )
        self.plain = PlainReader(sends, acks, lambda _: None, lambda _: True, lambda _: 0)
        self.engine = Http2Connection()
        self.client = H2Connection(H2Configuration(client_side=True))
        self.client.initiate_connection()
        self.stream = -1

    def acknowledge(self, place: str, queue_id: int, offset: int, start: int, pop_time: int) -> bool:
        assert place == "place"
        self.ends.append((queue_id, offset, start, pop_time))
        return offset != 404

    def call(self, request: bytes) -> bytes | None:
        """The response of the plain way; ``None`` if the call took the ordinary one."""
        self.stream += 2
        self.client.send_headers(self.stream, ACK_HEADERS)
        self.client.send_data(self.stream, prefixed(request), end_stream=True)
        self.plain.begin(b"", b"", 10)
        self.engine.plain = self.plain
        self.engine.receive(self.client.data_to_send(), 0.0)
        calls = self.plain.acknowledged
        return None if calls is None else calls.answers[0]


def request_of(handle: str = HANDLE, *, id: str = "id", topic: str = "T", group: str = "G") -> bytes:
    return new(
        schema.AckMessageRequest,
        group=new(schema.Resource, name=group),
        topic=new(schema.Resource, name=topic),
        entries=[new(schema.AckMessageEntry, message_id=id, receipt_handle=handle)],
    ).SerializeToString()


def judged(bench: Bench, request: bytes) -> bool:
    """Whether the plain way took a request; its effects and its response have to equal those of the ordinary
    way.
    """
    bench.ends.clear()
    answer = bench.call(request)
    if answer is None:
        return False
    try:
        asked = parse(schema.AckMessageRequest, request)
    except CallError as error:
        raise AssertionError("the plain way took what is no message") from error
    (entry,) = asked.entries
    assert (asked.topic, asked.group) == (
        new(schema.Resource, name="T"),
        new(schema.Resource, name="G"),
    )
    info = receipts.decode(entry.receipt_handle, BROKER).info
    assert (info.retry, info.is_orderly) == ("0", False)
    assert bench.ends == [(info.queue_id, info.queue_offset, info.check_point_offset, info.pop_time)]
    done = new(
        schema.AckMessageResultEntry,
        message_id=entry.message_id,
        receipt_handle=entry.receipt_handle,
        status=ok(),
    )
    wanted = new(schema.AckMessageResponse, status=ok(), entries=[done]).SerializeToString()
    assert answer == prefixed(wanted)
    return True


@pytest.mark.behaviour("GW-55")
def test_plain_handles_are_taken() -> None:
    for handle in (HANDLE, f"{HANDLE} ", HANDLE.rpartition(" ")[0], "0 0 0 0 0 broker-a 0 0"):
        assert judged(Bench(), request_of(handle))
        assert judged(Bench(), request_of(handle, id=""))
        assert judged(Bench(), request_of(handle, id="i" * 200))


UNUSUAL = {
    "of a retry topic": HANDLE.replace(" 0 broker", " 1 broker"),
    "in order": HANDLE.replace(" 3 0 ", " 999 0 "),
    "of another broker": HANDLE.replace("broker-a", "broker-b"),
    "of a broker with more behind its name": HANDLE.replace("broker-a", "broker-a2"),
    "cut": HANDLE[:30],
    "without an offset": "17 1700000000123 60000 3 0 broker-a 5",
    "empty": "",
    "with a sign": HANDLE.replace("17 ", "+17 "),
    "with two spaces": HANDLE.replace("17 ", "17  "),
    "with more words": f"{HANDLE} 1",
    "with a long number": HANDLE.replace("17 ", "1" * 20 + " "),
    "not in flight": HANDLE.replace(" 19 ", " 404 "),
    "too long": HANDLE + "1" * 1024,
}


@pytest.mark.behaviour("GW-55")
@pytest.mark.parametrize("name", UNUSUAL)
def test_unusual_handles_take_the_ordinary_way(name: str) -> None:
    assert Bench().call(request_of(UNUSUAL[name])) is None


@pytest.mark.behaviour("GW-55")
def test_other_unusual_requests_take_the_ordinary_way() -> None:
    entry = new(schema.AckMessageEntry, message_id="id", receipt_handle=HANDLE)
    good = parse(schema.AckMessageRequest, request_of())
    for more in (
        new(schema.AckMessageRequest, entries=[entry]),
        new(schema.AckMessageRequest, topic=good.topic),
    ):
        assert Bench().call(request_of() + more.SerializeToString()) is None
    good.group.resource_namespace = "n"
    assert Bench().call(good.SerializeToString()) is None
    assert Bench().call(request_of(topic="U")) is None
    assert Bench().call(request_of(group="H")) is None
    assert Bench().call(request_of(id="\u00fc")) is None
    assert Bench().call(b"") is None


@pytest.mark.behaviour("GW-55")
@settings(max_examples=300)
@given(data=st.data())
def test_what_is_taken_with_changed_bytes_is_what_protobuf_reads(data: st.DataObject) -> None:
    request = bytearray(request_of())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(request) - 1))
        request[at] = data.draw(st.integers(0, 255) | st.sampled_from(b"0123456789 "))
    judged(Bench(), bytes(request))
