"""Typed bodies: defaults, lenient parsing, the errors, and registrations of every version."""

from __future__ import annotations

import dataclasses
import inspect
import struct
import zlib
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.message.model import MessageQueue
from orbitmq.wire import all_bodies as bodies
from orbitmq.wire.bodies import base
from orbitmq.wire.bodies.auth import UserInfo
from orbitmq.wire.bodies.base import Body, encode_list
from orbitmq.wire.bodies.client import HeartbeatData
from orbitmq.wire.bodies.pop import AckMsg, BatchAck
from orbitmq.wire.bodies.route import BrokerData, QueueData, RegisterBrokerBody, TopicRouteData
from orbitmq.wire.bodies.stats import ConsumeStats, OffsetWrapper
from orbitmq.wire.bodies.topic import (
    DataVersion,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicQueueMappingInfo,
)
from orbitmq.wire.errors import BodyError

ALL = [
    kind
    for name in sorted(vars(bodies))
    if inspect.isclass(kind := getattr(bodies, name)) and issubclass(kind, Body)
]
KINDS = [kind for kind in ALL if kind is not Body]


def registration() -> RegisterBrokerBody:
    body = RegisterBrokerBody(filter_server_list=["f"])
    wrapper = body.topic_config_serialize_wrapper
    wrapper.data_version = DataVersion(1, 2, 3)
    wrapper.topic_config_table = {
        "A": TopicConfig("A", 4, 4, 6, attributes={"message.type": "NORMAL"}),
        "中": TopicConfig("中"),
    }
    wrapper.topic_queue_mapping_info_map = {
        "S": TopicQueueMappingInfo("S", total_queues=2, curr_id_map={0: 1})
    }
    return body


def test_every_body_has_defaults_and_survives() -> None:
    assert len(KINDS) > 70
    for kind in KINDS:
        body = kind()
        assert dataclasses.is_dataclass(body)
        assert kind.decode(body.encode()) == body
        assert kind.decode(body.encode(java_keys=True)) == body
        assert kind.decode(b"{}") == body


@given(st.sampled_from(KINDS), st.binary(max_size=40))
def test_rubbish_is_a_body_error(kind: type[Body], raw: bytes) -> None:
    with suppress(BodyError):
        kind.decode(raw)


SHAPES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


@given(st.sampled_from(KINDS), st.data())
def test_fields_of_a_wrong_shape_are_body_errors(kind: type[Body], data: st.DataObject) -> None:
    names = [name for name, _ in base._wire_names(kind)]
    value = data.draw(st.fixed_dictionaries({}, optional=dict.fromkeys(names, SHAPES)))
    with suppress(BodyError):
        kind.from_json(value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[]", r"TopicRouteData: \[\]; expected an object"),
        (
            '{"queueDatas":[{},{"perm":"x"}]}',
            r"TopicRouteData.queueDatas\[1\].perm: 'x'; expected an integer",
        ),
        (
            '{"brokerDatas":[{"brokerAddrs":{"a":"b"}}]}',
            r"brokerDatas\[0\].brokerAddrs\[a\]: 'a'; expected an int",
        ),
        ('{"brokerDatas":5}', "brokerDatas: 5; expected an array"),
        ('{"brokerDatas":[{"cluster":[]}]}', r"cluster: \[\]; expected text"),
        ('{"brokerDatas":[{"enableActingMaster":1}]}', "enableActingMaster: 1; expected true or false"),
        ('{"queueDatas":[{"perm":9223372036854775808}]}', "expected an integer of 64 bits"),
    ],
)
def test_errors_name_the_place(text: str, sentence: str) -> None:
    with pytest.raises(BodyError, match=sentence):
        TopicRouteData.decode(text.encode())


def test_other_errors() -> None:
    with pytest.raises(BodyError, match="messageModel: 'X'; expected one of CLUSTERING, BROADCASTING"):
        HeartbeatData.decode(b'{"consumerDataSet":[{"messageModel":"X"}]}')
    with pytest.raises(BodyError, match="expected a message queue as key"):
        ConsumeStats.decode(b'{"offsetTable":{"q":{}}}')
    with pytest.raises(BodyError, match="list of UserInfo"):
        UserInfo.decode_list(b"{}")
    with pytest.raises(BodyError, match="expected Base64"):
        BatchAck(bit_set="!").offsets()


def test_lenient_reading() -> None:
    route = TopicRouteData.decode(
        b'{"queueDatas":[{"perm":"6","brokerName":null,"x":[{}]}],"orderTopicConf":null}'
    )
    assert route.queue_datas == [QueueData(perm=6)]
    assert AckMsg.decode(b'{"ackOffset":5,"topic":"T","q":1}') == AckMsg(ack_offset=5, topic="T", queue_id=1)
    queue = r'"{\"brokerName\":\"b\",\"queueId\":1,\"topic\":\"T\"}"'
    quoted = b'{"offsetTable":{%s:{"brokerOffset":7}}}' % queue.encode()
    assert ConsumeStats.decode(quoted).offset_table == {
        MessageQueue("T", "b", 1): OffsetWrapper(broker_offset=7)
    }


def test_lists() -> None:
    users = [UserInfo("a"), UserInfo("b", "secret")]
    assert UserInfo.decode_list(encode_list(users)) == users
    assert encode_list([]) == b"[]"
    assert "secret" not in repr(users)


def test_old_clients_find_their_flag() -> None:
    text = QueueData("b", 4, 4, 6, 1, 1).encode().decode()
    assert '"topicSynFlag":1,"topicSysFlag":1' in text


def test_addresses_are_written_in_either_form() -> None:
    data = BrokerData("c", "b", {0: "x:1"})
    assert b'"brokerAddrs":{"0":"x:1"}' in data.encode()
    assert b'"brokerAddrs":{0:"x:1"}' in data.encode(java_keys=True)


def test_data_versions_are_ordered_and_counted() -> None:
    version = DataVersion(1, 50, 3)
    assert version.next(60) == DataVersion(1, 60, 4)
    assert version.next(60, state_version=2) == DataVersion(2, 60, 4)
    assert DataVersion(1, 40, 4).is_newer_than(version)
    assert DataVersion(2, 0, 0).is_newer_than(version)
    assert not version.is_newer_than(DataVersion(1, 50, 3))


@pytest.mark.parametrize("version", [37, 401, 413, 479])
def test_registrations(version: int) -> None:
    body = registration()
    assert RegisterBrokerBody.decode_registration(body.encode(), compressed=False, version=version) == body
    raw = body.encode_compressed(version)
    if version < 413:
        body.topic_config_serialize_wrapper.topic_queue_mapping_info_map = {}
    assert RegisterBrokerBody.decode_registration(raw, compressed=True, version=version) == body
    # Java's broker compresses the body without a field that says so.
    assert RegisterBrokerBody.decode_registration(raw, compressed=False, version=version) == body


def test_old_registrations() -> None:
    table = TopicConfigSerializeWrapper(DataVersion(0, 1, 2), {"A": TopicConfig("A")})
    body = RegisterBrokerBody.decode_registration(table.encode(), compressed=False, version=36)
    assert body.topic_config_serialize_wrapper.topic_config_table == table.topic_config_table
    assert body.topic_config_serialize_wrapper.data_version == table.data_version
    assert RegisterBrokerBody.decode_registration(b"", compressed=False, version=479) == RegisterBrokerBody()


def compressed(*parts: bytes | int) -> bytes:
    return zlib.compress(b"".join(p if isinstance(p, bytes) else struct.pack(">i", p) for p in parts))


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        (b"xyz", "zlib body of 3 bytes is damaged"),
        (compressed(2, b"{}", 1)[:-4], "ends too early"),
        (compressed(2), "length 2 of dataVersion does not fit"),
        (compressed(-1, b"{}"), "length -1 of dataVersion"),
        (compressed(2, b"{}"), "ends at byte 6, before topicConfig"),
        (compressed(2, b"{}", 2**31 - 1), "2147483647 entries of topicConfig do not fit"),
        (compressed(2, b"{}", 1, 1, b"A"), "topic config 'A' is not"),
        (compressed(2, b"{}", 1, 20, b"A 1 1 6 SINGLE_TAG ["), "expected a value"),
        (compressed(2, b"{}", 0, 2, b"[]"), "before topicQueueMappingInfo"),
    ],
)
def test_damaged_registrations(raw: bytes, sentence: str) -> None:
    with pytest.raises(BodyError, match=sentence):
        RegisterBrokerBody.decode_registration(raw, compressed=True, version=479)


@given(st.binary(max_size=60))
def test_random_registrations(raw: bytes) -> None:
    with suppress(BodyError):
        RegisterBrokerBody.decode_registration(zlib.compress(raw), compressed=True, version=479)


@given(st.sets(st.integers(0, 200), max_size=20), st.integers(0, 2**40))
def test_bits_of_a_batch_acknowledgement(diffs: set[int], start: int) -> None:
    ack = BatchAck(start_offset=start, bit_set=BatchAck.bits(diffs))
    assert ack.offsets() == [start + diff for diff in sorted(diffs)]
