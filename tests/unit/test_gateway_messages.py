"""Protobuf classes made from OrbitMQ's table: their fields, and that no other pool has them."""

from __future__ import annotations

from contextlib import suppress

import pytest
from google.protobuf import descriptor_pool
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.gateway import schema
from orbitmq.gateway.call import CallError, GrpcStatus
from orbitmq.gateway.messages import PACKAGE, duration, milliseconds, new, parse, timestamp


@pytest.mark.behaviour("GW-09")
def test_nothing_of_the_package_enters_protobufs_default_pool() -> None:
    with pytest.raises(KeyError):
        descriptor_pool.Default().FindMessageTypeByName(f"{PACKAGE}.Message")
    # The official client in the same process does this.
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    own = descriptor_pool.DescriptorPool()
    file = FileDescriptorProto(name="apache/rocketmq/v2/definition.proto", package=PACKAGE)
    own.AddSerializedFile(file.SerializeToString())


def test_a_message_comes_back_as_it_went() -> None:
    message = new(
        schema.Message,
        topic=new(schema.Resource, name="orders"),
        user_properties={"a": "1", "é": "ü"},
        system_properties=new(
            schema.SystemProperties,
            tag="t",
            keys=["k1", "k2"],
            message_id="id",
            queue_offset=1 << 40,
            delivery_attempt=0,
            born_timestamp=timestamp(1_700_000_000_123),
        ),
        body=b"\0\xff",
    )
    again = parse(schema.Message, message.SerializeToString())
    assert again == message
    assert dict(again.user_properties) == {"a": "1", "é": "ü"}
    system = again.system_properties
    assert list(system.keys) == ["k1", "k2"]
    assert milliseconds(system.born_timestamp) == 1_700_000_000_123
    assert system.HasField("delivery_attempt")
    assert not system.HasField("message_group")
    assert not system.HasField("delivery_timestamp")


def test_the_bytes_are_those_of_the_published_description() -> None:
    """Numbers and types are those of other programs: the expected bytes are written by hand from the field
    numbers.
    """
    entry = new(
        schema.SendResultEntry,
        status=new(schema.Status, code=20000, message="OK"),
        message_id="m",
        offset=300,
        recall_handle="r",
    )
    assert entry.SerializeToString() == (
        b"\x0a\x08" + b"\x08\xa0\x9c\x01\x12\x02OK" + b"\x12\x01m" + b"\x20\xac\x02" + b"\x2a\x01r"
    )
    backoff = new(schema.ExponentialBackoff, initial=duration(1500), multiplier=2.0)
    assert (
        backoff.SerializeToString() == b"\x0a\x08" + b"\x08\x01\x10\x80\xca\xb5\xee\x01" + b"\x1d\0\0\0\x40"
    )


def test_of_the_fields_of_one_choice_one_is_set() -> None:
    response = new(schema.ReceiveMessageResponse, status=new(schema.Status, code=20000))
    assert response.WhichOneof("content") == "status"
    response.delivery_timestamp.CopyFrom(timestamp(5))
    assert response.WhichOneof("content") == "delivery_timestamp"
    assert not response.HasField("status")


def test_a_field_of_a_newer_client_is_passed_over() -> None:
    unknown = b"\xfa\x7f\x03new" + b"\x08\x63"
    assert parse(schema.FilterExpression, unknown).type == 99


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a\x05abc",  # cut
        b"\x0a",
        b"\x0a\x04\x0d\x00\x00",
        b"\x0a\x06\x12\x04\xff\xfe\xfd\xfc",  # a name that is not UTF-8
        b"\x0b" * 200,  # nested
        b"\xff" * 30,
    ],
)
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(CallError, match="are no QueryRouteRequest") as caught:
        parse(schema.QueryRouteRequest, data)
    assert caught.value.status is GrpcStatus.INVALID_ARGUMENT


@given(st.binary(max_size=300))
def test_any_bytes_are_a_message_or_refused(data: bytes) -> None:
    for form in (schema.SendMessageRequest, schema.TelemetryCommand, schema.ReceiveMessageRequest):
        with suppress(CallError):
            parse(form, data)


@given(st.integers(0, 1 << 60))
def test_times_are_milliseconds(ms: int) -> None:
    assert milliseconds(timestamp(ms)) == ms == milliseconds(duration(ms))


def test_a_field_that_is_not_in_the_table_is_an_error() -> None:
    with pytest.raises(ValueError):
        new(schema.Resource, namespace="x")
