"""Every option of every client has a range, and a value outside is refused before any request is sent."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any

import pytest

import orbitmq
import orbitmq.sync
from orbitmq import AutoBatch, ValidationError
from orbitmq.client.consumer.options import (
    ConsumerOptions,
    PullConsumerOptions,
    SimpleOptions,
)
from orbitmq.client.consumer.puller import FlowLimits
from orbitmq.client.core.instance import ClientInstance
from orbitmq.client.producer.options import ProducerOptions
from orbitmq.client.ranges import RANGES
from orbitmq.message.sysflag import CompressionType
from orbitmq.testing import SimulatedRuntime

KINDS: dict[str, Any] = {
    "Producer": ProducerOptions,
    "Consumer": ConsumerOptions,
    "PullConsumer": PullConsumerOptions,
    "SimpleConsumer": SimpleOptions,
}
NUMBERS = ("int", "float", "int | None", "float | None")


def numbers(options: Any) -> list[str]:
    return [field.name for field in fields(options) if str(field.type) in NUMBERS]


def ranges_of(name: str) -> list[str]:
    """The names of an option in the table of ranges."""
    return [key for key in RANGES if key == name or key.startswith(f"{name} of ")]


@pytest.mark.behaviour("SK-20")
def test_every_number_has_a_range_and_its_default_is_inside() -> None:
    for options in KINDS.values():
        for field in fields(options):
            if field.name in numbers(options):
                assert ranges_of(field.name), f"{field.name} has no range"
                if field.default not in (None, MISSING):
                    for key in ranges_of(field.name):
                        RANGES[key].check(field.name, field.default)
    for nested in (AutoBatch, FlowLimits):
        for name in numbers(nested):
            assert f"{nested.__name__}.{name}" in RANGES


@pytest.mark.parametrize("door", [orbitmq, orbitmq.sync])
@pytest.mark.parametrize("name", KINDS)
def test_a_number_outside_its_range_is_refused_by_name_when_the_client_is_made(door: Any, name: str) -> None:
    for option in numbers(KINDS[name]):
        key = ranges_of(option)[0]
        wrong = [RANGES[key].least - 1, "many", True, float("nan")]
        if RANGES[key].most is not None:
            wrong.append(RANGES[key].most + 1)
        for value in wrong:
            with pytest.raises(ValidationError, match=f"{option}.* must be "):
                getattr(door, name)("group", **{option: value})


@pytest.mark.parametrize("nested", [AutoBatch, FlowLimits])
def test_numbers_of_nested_options_are_refused_alike(nested: Any) -> None:
    for option in numbers(nested):
        with pytest.raises(ValidationError, match=f"{option} of .* must be "):
            nested(**{option: RANGES[f"{nested.__name__}.{option}"].least - 1})


@pytest.mark.behaviour("SK-20")
@pytest.mark.parametrize(
    ("kind", "level", "limits"),
    [
        (CompressionType.ZLIB, 10, "0 to 9"),
        (CompressionType.ZLIB, -1, "0 to 9"),
        (CompressionType.ZSTD, 23, "1 to 22"),
    ],
)
def test_a_compression_level_is_refused_when_the_producer_is_made(
    kind: CompressionType, level: int, limits: str
) -> None:
    """Otherwise level 10 of zlib raises zlib.error at the first large message."""
    with pytest.raises(ValidationError, match=f"compression_level of {kind.name} must be {limits}"):
        orbitmq.Producer("group", compression=kind, compression_level=level)


@pytest.mark.parametrize(
    ("name", "options", "text"),
    [
        ("Producer", {"compression": "zlib"}, "compression must be CompressionType"),
        ("Producer", {"auto_batch": True}, "auto_batch must be .*AutoBatch"),
        ("Producer", {"retry_not_stored_ok": "yes"}, "retry_not_stored_ok must be True or False"),
        ("Producer", {"namespace": None}, "namespace must be a string"),
        ("Producer", {"retry_codes": ["1"]}, "a code of retry_codes must be"),
        ("Producer", {"client": "x"}, "client must be a ClientInstance"),
        ("Producer", {"middleware": print}, "middleware must be a list"),
        ("Producer", {"hooks": "x"}, "hooks must be a list"),
        ("Producer", {"retry_codes": 3}, "retry_codes must be a list"),
        ("Producer", {"trace": 3}, "trace must be True, False or a string"),
        ("Producer", {"trace": "no topic!"}, "illegal characters"),
        ("Producer", {"namespace": "no name"}, "illegal characters"),
        ("TransactionProducer", {"check": None}, "check must be a function"),
        ("Consumer", {"allocate": 3}, r"allocate must be a function or ByBroker\(\)"),
        ("Consumer", {"namespace": "no name"}, "illegal characters"),
        ("Consumer", {"limits": 3}, "limits must be .*FlowLimits"),
        ("Consumer", {"ordered": 1}, "ordered must be True or False"),
        ("Consumer", {"failure_pause": 0}, "failure_pause must be 0.001 to 60 seconds, .*got 0"),
        ("PullConsumer", {"auto_commit": 0}, "auto_commit must be True or False"),
    ],
)
def test_a_value_of_another_kind_is_refused(name: str, options: Any, text: str) -> None:
    with pytest.raises(ValidationError, match=text):
        getattr(orbitmq, name)("group", **options)


@pytest.mark.parametrize("name", ["Consumer", "PullConsumer", "SimpleConsumer"])
@pytest.mark.parametrize("namespace", ["", "ns"])
def test_a_subscription_of_another_kind_is_refused(name: str, namespace: str) -> None:
    consumer = getattr(orbitmq, name)("group", namespace=namespace)
    for arguments, text in (
        ((3,), "topic must be a string"),
        (("t", None), "tags must be a string"),
        (("t", "*", 3), "sql must be a string"),
    ):
        with pytest.raises(ValidationError, match=text):
            consumer.subscribe(*arguments[:2], sql=dict(enumerate(arguments)).get(2))


@pytest.mark.behaviour("SK-20")
@pytest.mark.parametrize("name", KINDS)
async def test_options_of_connections_beside_a_shared_client_are_refused(
    runtime: SimulatedRuntime, name: str
) -> None:
    """If other name servers were ignored, messages would go to the wrong cluster."""
    client = ClientInstance(runtime, "one:9876;two:9876")
    kind = getattr(orbitmq, name)
    kind("group", client=client)
    kind("group", client=client, name_servers="two:9876;one:9876", runtime=runtime)
    for servers in ("other:9876", "127.0.0.1:9876"):
        with pytest.raises(ValidationError, match=f"name_servers is '{servers}', but the client .* uses"):
            kind("group", client=client, name_servers=servers)
    with pytest.raises(ValidationError, match="runtime is not that of the client"):
        kind("group", client=client, runtime=object())
    with pytest.raises(ValidationError, match="namespace_v2 belongs to the connections"):
        kind("group", client=client, namespace_v2="tenant")


async def test_a_producer_asks_for_as_many_queues_as_the_client_it_shares(runtime: SimulatedRuntime) -> None:
    client = ClientInstance(runtime, "one:9876", default_topic_queues=7)
    orbitmq.Producer("group", client=client, default_topic_queues=7)
    with pytest.raises(ValidationError, match=r"default_topic_queues is 8, that of the client .* 7"):
        orbitmq.Producer("group", client=client, default_topic_queues=8)
