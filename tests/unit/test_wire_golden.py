"""Every vector of Apache RocketMQ, byte for byte and in both directions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orbitmq.message import sysflag
from orbitmq.message.batch import encode_batch, iter_batch
from orbitmq.message.ids import UniqueIds, offset_message_id, parse_offset_message_id
from orbitmq.message.model import Message
from orbitmq.message.properties import decode_properties, encode_properties, properties_text
from orbitmq.message.record import body_crc, decode_record, encode_record, to_received
from orbitmq.message.tags import java_hash, tags_code
from orbitmq.runtime.system import system_runtime
from orbitmq.wire import all_bodies as bodies
from orbitmq.wire.binary_header import decode_binary_header, encode_binary_header
from orbitmq.wire.command import Command, Language, Serialization
from orbitmq.wire.frame import decode_frame, encode_frame
from orbitmq.wire.headers.send import SendMessageRequest, SendMessageV2Request
from orbitmq.wire.json_header import decode_json_header, encode_json_header
from orbitmq.wire.pop_info import RETRY_V1, RETRY_V2, ExtraInfo
from orbitmq.wire.recall_handle import RecallHandle


def _vectors() -> dict[str, str]:
    found = {}
    for line in (Path(__file__).parent / "golden" / "vectors.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            name, _, text = line.partition(" => ")
            found[name.removesuffix(" =>")] = text
    return found


VECTORS = _vectors()
TIME = 1700000000000
# The vectors of JSON bodies that are not named after their class.
BODY_NAMES = {
    "TopicConfig json": "TopicConfig",
    "TopicRouteData old": "TopicRouteData",
    "TopicRouteData std": "TopicRouteData",
    "Heartbeat": "HeartbeatData",
}
HEADERS = ("frame JSON header", "resp JSON", "SendV2 JSON", "SendV1 JSON")
BODIES = [name for name, text in VECTORS.items() if text.startswith("{") and name not in HEADERS]


@pytest.mark.parametrize("name", BODIES)
def test_body_is_read_and_written_as_java_does(name: str) -> None:
    text = VECTORS[name].encode()
    kind = getattr(bodies, BODY_NAMES.get(name, name))
    body = kind.decode(text)
    assert body.encode(java_keys="std" not in name) == text
    assert kind.decode(body.encode()) == body


def test_there_are_vectors() -> None:
    assert len(BODIES) == 34
    assert len(VECTORS) == 65


def test_values_of_bodies() -> None:
    route = bodies.TopicRouteData.decode(VECTORS["TopicRouteData old"].encode())
    assert route.broker_datas[0].broker_addrs == {0: "127.0.0.1:10911", 1: "127.0.0.1:10921"}
    stats = bodies.TopicStatsTable.decode(VECTORS["TopicStatsTable"].encode())
    ((queue, offsets),) = stats.offset_table.items()
    assert (queue.topic, queue.broker_name, queue.queue_id) == ("TopicA", "broker-a", 1)
    assert (offsets.min_offset, offsets.max_offset, offsets.last_update_timestamp) == (0, 10, 5)
    heartbeat = bodies.HeartbeatData.decode(VECTORS["Heartbeat"].encode())
    subscription = heartbeat.consumer_data_set[0].subscription_data_set[0]
    assert subscription.tags_set == {"tagA", "tagB"}
    assert subscription.code_set == {tags_code("tagA"), tags_code("tagB")}
    acks = bodies.BatchAckMessageRequestBody.decode(VECTORS["BatchAckMessageRequestBody"].encode()).acks
    assert acks[0].offsets() == [10, 19]
    assert bodies.BatchAck.bits([0, 9]) == acks[0].bit_set
    check_point = bodies.PopCheckPoint.decode(VECTORS["PopCheckPoint"].encode())
    assert check_point.revive_time == check_point.pop_time + 60000


def test_heartbeat_fingerprint() -> None:
    heartbeat = bodies.HeartbeatData.decode(VECTORS["Heartbeat"].encode())
    assert heartbeat.fingerprint() == int(VECTORS["Heartbeat fingerprint"])


def test_registration() -> None:
    body = bodies.RegisterBrokerBody.decode(VECTORS["RegisterBrokerBody"].encode())
    assert bodies.registration_crc(body.encode()) == int(VECTORS["RegisterBrokerBody crc32"])
    compressed = bytes.fromhex(VECTORS["RegisterBrokerBody compressed"])
    assert body.encode_compressed() == compressed
    read = bodies.RegisterBrokerBody.decode_registration(compressed, compressed=True, version=479)
    # The version of the mappings is not part of the compressed form.
    read.topic_config_serialize_wrapper.mapping_data_version.timestamp = TIME
    assert read == body


def test_topic_config_text() -> None:
    config = bodies.TopicConfig.decode(VECTORS["TopicConfig json"].encode())
    assert config.encode_text() == VECTORS["TopicConfig encode"]
    assert bodies.TopicConfig.decode_text(VECTORS["TopicConfig encode"]) == config


@pytest.mark.parametrize("name", ["frame JSON", "frame ROCKETMQ"])
def test_frame(name: str) -> None:
    raw = bytes.fromhex(VECTORS[name])
    command = decode_frame(raw)
    assert encode_frame(command) == raw
    assert (command.code, command.opaque, command.version) == (105, 7, 479)
    assert command.language == Language.JAVA
    assert command.ext == {"topic": "TBW102"}


def test_frame_contents() -> None:
    command = decode_frame(bytes.fromhex(VECTORS["frame ROCKETMQ"]))
    assert (command.remark, command.body) == ("hi", b"\x01\x02\x03")
    assert command.serialization is Serialization.ROCKETMQ
    json_frame = bytes.fromhex(VECTORS["frame JSON"])
    assert json_frame[8:].decode() == VECTORS["frame JSON header"]


@pytest.mark.parametrize("name", ["frame JSON header", "resp JSON", "SendV2 JSON"])
def test_json_header(name: str) -> None:
    text = VECTORS[name].encode()
    assert encode_json_header(decode_json_header(text)) == text


def test_response_flag() -> None:
    command = decode_json_header(VECTORS["resp JSON"].encode())
    assert command.is_response
    assert not command.is_oneway


def test_send_headers() -> None:
    # The order of extFields is that of a Java HashMap, so version 1 is compared as a map.
    first = decode_json_header(VECTORS["SendV1 JSON"].encode())
    one = SendMessageRequest.from_ext(first.ext)
    assert one.to_ext() == first.ext
    assert json.loads(encode_json_header(first)) == json.loads(VECTORS["SendV1 JSON"])
    second = decode_json_header(VECTORS["SendV2 JSON"].encode())
    two = SendMessageV2Request.from_ext(second.ext)
    assert two.to_ext() == second.ext
    assert (two.producer_group, two.queue_id, two.born_timestamp, two.batch) == ("pg", 1, TIME, False)
    assert two.broker_name == one.bname == "broker-a"
    assert encode_json_header(two.command(opaque=1, version=0, language=0)).decode() == VECTORS["SendV2 JSON"]


def test_codes_of_the_binary_header_have_16_bits() -> None:
    cut = decode_binary_header(encode_binary_header(Command(200050)))
    assert cut.code == int(VECTORS["code 200050 after ROCKETMQ roundtrip"])
    # A frame never loses the code: it uses the JSON header instead.
    whole = decode_frame(encode_frame(Command(200050, serialization=Serialization.ROCKETMQ)))
    assert whole.code == 200050


def test_record() -> None:
    raw = bytes.fromhex(VECTORS["msg V1"])
    record = decode_record(raw)
    assert encode_record(record) == raw
    assert (record.topic, record.body, record.queue_id, record.queue_offset) == ("TopicA", b"hello", 1, 2)
    assert record.born_host == ("127.0.0.1", 1234)
    assert record.body_crc == body_crc(b"hello") == int(VECTORS["crc32(hello) UtilAll"])
    assert record.message_id == VECTORS["decoded msgId"]
    message = to_received(record, "broker-a")
    assert message.properties == {"k": "v"}
    assert message.message_id == VECTORS["decoded msgId"]
    assert message.sys_flag & sysflag.COMPRESSED == 0


def test_message_ids() -> None:
    text = VECTORS["msgid v4"]
    assert parse_offset_message_id(text) == ("127.0.0.1", 10911, 256)
    assert offset_message_id("127.0.0.1", 10911, 256) == text
    assert len(UniqueIds(system_runtime(), "::1").next()) == int(VECTORS["uniqId len"])


def test_batch_item() -> None:
    raw = bytes.fromhex(VECTORS['batch item props {"k":"v","WAIT":"true"}'])
    (item,) = iter_batch(raw)
    assert decode_properties(item.properties) == {"k": "v", "WAIT": "true"}
    assert item.body == b"b"
    assert encode_batch([Message("T", b"b", properties={"k": "v", "WAIT": "true"})]) == raw


def test_hashes() -> None:
    assert tags_code("tagA") == int(VECTORS["tagsCode tagA"])
    assert tags_code("中文") == int(VECTORS["tagsCode 中文"])
    assert java_hash("polygenelubricants") == int(VECTORS["tagsCode neg"])


def test_properties() -> None:
    pairs = dict(pair.split("=") for pair in VECTORS["props map order"].strip(";").split(";"))
    assert decode_properties(encode_properties(pairs)) == pairs
    assert properties_text(pairs).encode() == encode_properties(pairs)


@pytest.mark.parametrize(
    ("name", "retry", "queue"),
    [("extraInfo", "0", 1), ("extraInfo retryV1", RETRY_V1, 0), ("extraInfo retryV2", RETRY_V2, 0)],
)
def test_extra_info(name: str, retry: str, queue: int) -> None:
    info = ExtraInfo(10, TIME, 60000, 3, retry, "broker-a", queue, 12)
    assert info.encode() == VECTORS[name]
    assert ExtraInfo.decode(VECTORS[name]) == info


def test_recall_handle() -> None:
    handle = RecallHandle("TopicA", "broker-a", str(TIME), "7F0000010000")
    assert handle.encode() == VECTORS["recallHandle"]
    assert RecallHandle.decode(VECTORS["recallHandle"]) == handle
