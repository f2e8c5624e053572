"""brokerIP1, brokerIP2 and bindAddress: names, long and short IPv6, with or without brackets."""

from __future__ import annotations

import asyncio
import socket

import pytest
from tests.conversation.broker_peer import BrokerPeer, broker_config

from orbitmq.broker.broker import Broker
from orbitmq.broker.config import BrokerConfig, ConfigError
from orbitmq.errors import StartError
from orbitmq.message.record import decode_record
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.runtime.system import SystemNetwork
from orbitmq.testing.machine.simulated import SimulatedRuntime, simulated_runtime

HOSTS = [
    ("localhost", "localhost"),
    ("Broker-A.example", "broker-a.example"),
    ("rmq_broker_1", "rmq_broker_1"),
    ("10.0.0.5", "10.0.0.5"),
    ("[::1]", "::1"),
    ("::1", "::1"),
    ("0:0:0:0:0:0:0:1", "::1"),
    ("[2001:DB8:0::5]", "2001:db8::5"),
    ("::ffff:10.0.0.5", "10.0.0.5"),
]
NO_HOSTS = ["10.0.0.5:10911", "[::1", "::1::2", "a b", "http://a", "256.0.0.1", "1.2.3", "a/b", "-a"]


@pytest.mark.behaviour("RT-18")
@pytest.mark.parametrize("key", ["brokerIP1", "brokerIP2", "bindAddress"])
@pytest.mark.parametrize(("written", "expected"), HOSTS)
def test_a_host_has_one_form(key: str, written: str, expected: str) -> None:
    assert BrokerConfig.load(f"{key}={written}")[0].to_properties()[key] == expected
    assert NameServerConfig.load(f"bindAddress={written}")[0].bind_address == expected


@pytest.mark.parametrize("key", ["brokerIP1", "brokerIP2", "bindAddress"])
@pytest.mark.parametrize("written", NO_HOSTS)
def test_what_is_no_host_is_refused(key: str, written: str) -> None:
    with pytest.raises(ConfigError, match="expected a name or an IP address, without a port"):
        BrokerConfig.load("", {key: written})


@pytest.mark.parametrize("written", ["0.0.0.0", "::", "[::]", "224.0.0.1", "ff02::1", "255.255.255.255"])
def test_an_address_that_nobody_can_connect_to_is_refused(written: str) -> None:
    for key in ("brokerIP1", "brokerIP2"):
        with pytest.raises(ConfigError, match="expected the address of this machine: nobody can connect"):
            BrokerConfig.load(f"{key}={written}")
    for kind in (BrokerConfig, NameServerConfig):
        if written in ("0.0.0.0", "::", "[::]"):
            kind.load(f"bindAddress={written}")
        else:
            with pytest.raises(ConfigError, match=r"expected an address of this machine, or 0\.0\.0\.0"):
                kind.load(f"bindAddress={written}")


@pytest.mark.usefixtures("orbitmq_loop")
async def test_a_name_of_an_address_that_nobody_can_connect_to_is_a_start_error() -> None:
    runtime = simulated_runtime(1)
    runtime.network.names["all"] = "0.0.0.0"
    with pytest.raises(StartError, match=r"^brokerIP1=all is 0\.0\.0\.0: nobody can connect to that address"):
        await Broker(runtime, broker_config(broker_ip1="all")).start()


async def sent_and_read(runtime: SimulatedRuntime, host: str, ip: str) -> str:
    """The address of a broker at which a message was sent and read; its record names ``ip``."""
    async with Broker(runtime, broker_config(broker_ip1=host)) as broker:
        async with BrokerPeer(runtime, broker.address) as peer:
            await peer.send()
        record = broker.services.store.record_at(0)
        assert record is not None
        assert decode_record(record).store_host == (ip, broker.port)
        return broker.address


@pytest.mark.behaviour("RT-18")
@pytest.mark.usefixtures("orbitmq_loop")
async def test_records_have_the_address_of_a_name_and_clients_are_told_the_name() -> None:
    runtime = simulated_runtime(1)
    runtime.network.names["broker-a"] = "127.0.0.1"
    assert await sent_and_read(runtime, "localhost", "127.0.0.1") == "localhost:10911"
    runtime = simulated_runtime(1)
    runtime.network.names["broker-a"] = "127.0.0.1"
    assert await sent_and_read(runtime, "broker-a", "127.0.0.1") == "broker-a:10911"


@pytest.mark.behaviour("RT-18")
@pytest.mark.usefixtures("orbitmq_loop")
async def test_a_name_that_nobody_knows_is_a_start_error() -> None:
    broker = Broker(simulated_runtime(1), broker_config(broker_ip1="no-such-host"))
    with pytest.raises(StartError, match=r"^brokerIP1=no-such-host: no address is known for this name"):
        await broker.start()


def test_the_system_finds_an_ipv4_address_first() -> None:
    assert asyncio.run(SystemNetwork().resolve("localhost")) in ("127.0.0.1", "::1")
    assert asyncio.run(SystemNetwork().resolve("10.0.0.5")) == "10.0.0.5"
    assert asyncio.run(SystemNetwork().resolve("::1")) == "::1"
    with pytest.raises(socket.gaierror):
        asyncio.run(SystemNetwork().resolve("no-such-host.invalid"))
