"""Addresses have one parser: all servers, clients and tools accept and refuse the same."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from orbitmq.admin import Admin
from orbitmq.broker.config import BrokerConfig
from orbitmq.client.core.name_servers import parse_source
from orbitmq.errors import ValidationError
from orbitmq.spark.option_values import addresses as spark_addresses
from orbitmq.testing.machine.simulated import simulated_runtime
from orbitmq.transport.address import parse_address
from orbitmq.transport.errors import ConnectError
from orbitmq.wire.addresses import AddressError, joined, several, split

GOOD = [
    ("a:1", ["a:1"]),
    ("a:1,b:2", ["a:1", "b:2"]),
    (" a:1 ; b:2 ;", ["a:1", "b:2"]),
    ("a:1;b:2,a:1; ;c:3;", ["a:1", "b:2", "c:3"]),
    ("Host-A.example:9876;host-a.example:9876", ["host-a.example:9876"]),
    ("broker_1:10911", ["broker_1:10911"]),
    ("10.0.0.1:9876", ["10.0.0.1:9876"]),
    ("[::1]:9876", ["[::1]:9876"]),
    ("::1:9876,[0:0:0:0:0:0:0:1]:9876", ["[::1]:9876"]),
    ("[2001:DB8::0:1]:9876", ["[2001:db8::1]:9876"]),
    ("[fe80::1%eth0]:9876", ["[fe80::1%eth0]:9876"]),
    ("[::ffff:10.0.0.1]:9876", ["10.0.0.1:9876"]),
    ("", []),
    (" ; ,", []),
]
BAD = [
    *("a", "a:", ":1", "a:0", "a:70000", "a:x", "a:-1", "a:1.5", "a:\u00b2", "a: 1", "a b:1", "a:1 b:2"),
    *(
        "http://a:1",
        "rocketmq://a:1",
        "a/b:1",
        "[::1]",
        "::1",
        "[::1:9876",
        "[a]:1",
        "1.2.3:4",
        "256.1.1.1:1",
    ),
    *("a:1;b", "-a:1", "a:00000001", "\u00e4:1", "x" * 300 + ":1"),
]


def of_broker(text: str) -> list[str]:
    return BrokerConfig.load(f"namesrvAddr={text}")[0].name_servers


def of_spark(text: str) -> list[str]:
    return list(spark_addresses(text))


def of_client(text: str) -> list[str]:
    found = parse_source(text)
    assert isinstance(found, tuple)
    return list(found)


READERS: list[Callable[[str], list[str]]] = [several, of_client, of_broker, of_spark]


@pytest.mark.behaviour("RT-17")
@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize(("text", "expected"), GOOD)
def test_all_read_the_same(read: Callable[[str], list[str]], text: str, expected: list[str]) -> None:
    if read is of_spark and not expected:
        with pytest.raises(ValueError, match="is empty"):
            read(text)
    else:
        assert read(text) == expected


@pytest.mark.behaviour("RT-17")
@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("text", BAD)
def test_all_refuse_the_same(read: Callable[[str], list[str]], text: str) -> None:
    with pytest.raises((ValueError, ValidationError), match="not host:port"):
        read(text)


@pytest.mark.parametrize("text", [text for text in BAD if text != "a:1;b"])
def test_a_connection_is_made_to_no_other(text: str) -> None:
    with pytest.raises(ConnectError, match="is not host:port"):
        parse_address(text)


def test_a_scheme_is_named() -> None:
    with pytest.raises(AddressError, match="'http://a:1' is not host:port: write it without http://"):
        split("http://a:1")


def test_a_port_out_of_range_is_named() -> None:
    with pytest.raises(AddressError, match="'a:99999' is not host:port: a port is 1 to 65535"):
        split("a:99999")


def test_what_is_written_is_read() -> None:
    for host in ("a", "10.0.0.1", "::1", "2001:db8::1"):
        assert split(joined(host, 9876)) == (host, 9876)


@pytest.mark.usefixtures("orbitmq_loop")
async def test_tools_take_a_list_too() -> None:
    async with Admin([" a:1 ", "::1:2"], runtime=simulated_runtime(1)):
        pass
    with pytest.raises(ValidationError, match="without http://"):
        Admin("http://a:1", runtime=simulated_runtime(1))


@pytest.mark.behaviour("RT-17")
def test_the_settings_show_the_form_that_is_used() -> None:
    config, _ = BrokerConfig.load("namesrvAddr= a:1 , ::1:2 ;\nhaMasterAddress=0:0::1:10912")
    assert config.namesrv_addr == "a:1;[::1]:2"
    assert config.ha_master_address == "[::1]:10912"
