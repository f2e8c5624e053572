"""Settings that Apache's broker reads anew for each request change in handlers and fast path alike while the
broker runs.
"""

from __future__ import annotations

import asyncio
import errno
import re

import pytest
from tests.conversation.broker_peer import BrokerPeer, broker_config, pull_request, records

from orbitmq.broker.broker import Broker
from orbitmq.broker.config import BrokerConfig
from orbitmq.settings import properties_text
from orbitmq.testing.machine.simulated import SimulatedRuntime
from orbitmq.wire.bodies.topic import KVTable
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.headers.pull import PullMessageResponse, QueryMessageRequest

MIB = 1024 * 1024


async def change(peer: BrokerPeer, **settings: object) -> None:
    text = properties_text.render({key: str(value) for key, value in settings.items()})
    await peer.ok(RequestCode.UPDATE_BROKER_CONFIG, text.encode())


async def filled(peer: BrokerPeer, count: int = 6) -> None:
    """Create a topic whose messages the group has pulled once, so that the fast path knows both."""
    for _ in range(count):
        await peer.sent(bytes(1000))
    await asyncio.sleep(1)
    assert len(records(await peer.pull())) == count


@pytest.mark.parametrize("door", ["fast path", "handlers"])
async def test_how_much_one_pull_gets(broker: Broker, peer: BrokerPeer, door: str) -> None:
    # The fast path leaves a pull with a limit of this many bytes to the handlers.
    asked = 1 << 20 if door == "handlers" else None
    await filled(peer)
    await change(peer, maxTransferCountOnMessageInMemory=2)
    assert len(records(await peer.pull(max_msg_bytes=asked))) == 2
    before = broker.services.counters.handled_out
    assert len(records(await peer.pull(max_msg_bytes=asked))) == 2
    assert broker.services.counters.handled_out - before == (2 if door == "handlers" else 0)
    await change(peer, maxTransferCountOnMessageInMemory=5)
    for _ in range(2):
        assert len(records(await peer.pull(max_msg_bytes=asked))) == 5


async def test_how_many_bytes_one_pull_gets(peer: BrokerPeer) -> None:
    await filled(peer)
    await change(peer, maxTransferBytesOnMessageInMemory=4000)
    for _ in range(2):
        assert len(records(await peer.pull())) == 3


@pytest.mark.broker(mapped_file_size_commit_log=32 * MIB)
async def test_how_large_a_message_may_be(broker: Broker, peer: BrokerPeer) -> None:
    await filled(peer, 1)
    large = bytes(6 * MIB)
    refused = await peer.send(large)
    assert refused.code == ResponseCode.MESSAGE_ILLEGAL
    assert "maxMessageSize 4194304" in (refused.remark or "")
    await change(peer, maxMessageSize=7 * MIB)
    assert (await peer.sent(large)).queue_offset == 1
    assert (await peer.sent(b"behind it")).queue_offset == 2
    await asyncio.sleep(1)
    assert [record.body for record in records(await peer.pull(1))] == [large]
    await change(peer, maxMessageSize=100)
    for size, code in ((100, ResponseCode.SUCCESS), (101, ResponseCode.MESSAGE_ILLEGAL)):
        assert (await peer.send(bytes(size))).code == code


async def test_what_producers_are_told_about_traces(broker: Broker, peer: BrokerPeer) -> None:
    await filled(peer, 1)
    await change(peer, regionId="west 1", traceOn="false")
    before = broker.services.counters.handled_in
    for _ in range(2):
        answer = await peer.send()
        assert (answer.ext["MSG_REGION"], answer.ext["TRACE_ON"]) == ("west 1", "false")
    assert broker.services.counters.handled_in == before
    await asyncio.sleep(1)
    stored = records(await peer.pull())[-1]
    assert b"MSG_REGION\x01west 1\x02TRACE_ON\x01false\x02" in stored.properties


async def test_unique_ids_stay_unique_when_settings_change(peer: BrokerPeer) -> None:
    await filled(peer, 1)
    ids: list[str | None] = []
    for region in ("a", "b", "a"):
        await change(peer, regionId=region)
        ids += [(await peer.sent()).transaction_id for _ in range(3)]
    assert None not in ids
    assert len(set(ids)) == len(ids)


async def test_a_region_that_no_header_could_hold_is_refused(broker: Broker, peer: BrokerPeer) -> None:
    for wrong in ('a"b', "a\\\\b", "ü"):
        refused = await peer.call(RequestCode.UPDATE_BROKER_CONFIG, f"regionId={wrong}".encode())
        assert refused.code == ResponseCode.NO_PERMISSION
        assert "printable ASCII" in (refused.remark or "")
    assert broker.config.region_id == "DefaultRegion"


async def test_whether_lite_pull_consumers_are_served(peer: BrokerPeer) -> None:
    await filled(peer)

    async def lite() -> int:
        command = pull_request()
        command.code = RequestCode.LITE_PULL_MESSAGE
        return (await peer.ask(command)).code

    assert await lite() == ResponseCode.SUCCESS
    await change(peer, litePullMessageEnable="false")
    assert await lite() == ResponseCode.NO_PERMISSION
    await change(peer, litePullMessageEnable="true")
    assert await lite() == ResponseCode.SUCCESS


async def test_whether_groups_are_sent_to_another_replica(broker: Broker, peer: BrokerPeer) -> None:
    await filled(peer)
    group = broker.services.groups.get("cg")
    assert group is not None
    group.broker_id = 1
    for enabled, suggested in (("true", 1), ("false", 0)):
        await change(peer, slaveReadEnable=enabled)
        for _ in range(2):
            answer = PullMessageResponse.from_ext((await peer.pull()).ext)
            assert answer.suggest_which_broker_id == suggested


async def test_how_many_messages_a_query_finds(peer: BrokerPeer) -> None:
    for _ in range(6):
        await peer.sent(properties={"KEYS": "order-1"})
    await asyncio.sleep(1)

    async def found(*, unique: bool) -> int:
        command = QueryMessageRequest(
            topic="T", key="order-1", max_num=6, begin_timestamp=0, end_timestamp=2**63 - 1
        ).command()
        command.ext["_UNIQUE_KEY_QUERY"] = "true" if unique else "false"
        return len(records(await peer.ask(command)))

    assert await found(unique=False) == 6
    await change(peer, maxMsgsNumBatch=4)
    assert await found(unique=False) == 4
    await change(peer, defaultQueryMaxNum=1)
    assert await found(unique=False) == 4


async def test_when_the_offsets_get_a_new_version(broker: Broker, peer: BrokerPeer) -> None:
    offsets = broker.services.offsets
    before = offsets.version.counter
    offsets.commit("cg", "T", 0, 1)
    assert offsets.version.counter == before
    await change(peer, consumerOffsetUpdateVersionStep=1)
    offsets.commit("cg", "T", 0, 2)
    assert offsets.version.counter == before + 1


@pytest.mark.broker(flush_disk_type="ASYNC_FLUSH", flush_interval_commit_log_ms=60_000)
async def test_how_often_the_log_is_flushed(broker: Broker, peer: BrokerPeer) -> None:
    store = broker.services.store

    async def flushed_soon() -> bool:
        await peer.sent()
        await asyncio.sleep(0.3)
        return store.flushed_offset == store.max_commit_log_offset

    assert not await flushed_soon()
    await change(peer, flushIntervalCommitLog=100)
    await asyncio.sleep(61)  # the interval that is under way ends first
    assert [await flushed_soon() for _ in range(3)] == [True] * 3


async def test_how_long_an_answer_waits_for_the_disk(
    broker: Broker, peer: BrokerPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(peer, 1)
    threads = broker.runtime.threads
    later, sync = asyncio.get_running_loop().call_later, threads.sync
    monkeypatch.setattr(threads, "sync", lambda segments, done: later(2, sync, segments, done))
    await change(peer, syncFlushTimeout=300)
    began = broker.runtime.clock.monotonic()
    assert (await peer.send()).code == ResponseCode.FLUSH_DISK_TIMEOUT
    assert 0.3 <= broker.runtime.clock.monotonic() - began < 1


async def test_settings_that_may_change_and_those_that_may_not(broker: Broker, peer: BrokerPeer) -> None:
    text = properties_text.render({"autoCreateTopicEnable": "false", "fileReservedTime": "5"})
    await peer.ok(RequestCode.UPDATE_BROKER_CONFIG, text.encode())
    assert broker.config.auto_create_topic_enable is False
    assert broker.services.store.config.file_reserved_ms == 5 * 3_600_000
    shown = await peer.ok(RequestCode.GET_BROKER_CONFIG)
    settings_shown = properties_text.parse(shown.body.decode())
    assert settings_shown["fileReservedTime"] == "5"
    assert settings_shown["brokerName"] == "broker-a"
    for bad in ("storePathRootDir=/etc", "fileReservedTime=9\nnonsense=1", "fileReservedTime=x"):
        refused = await peer.call(RequestCode.UPDATE_BROKER_CONFIG, bad.encode())
        assert refused.code == ResponseCode.NO_PERMISSION
    assert broker.config.file_reserved_time_hours == 5
    info = await peer.ok(RequestCode.GET_BROKER_RUNTIME_INFO)
    state = KVTable.decode(info.body).table
    assert (state["brokerActive"], state["putTps"]) == ("true", "0.0 0.0 0.0")
    assert re.fullmatch(r"\[ 0 days, 0 hours, 0 minutes, \d+ seconds \]", state["runtime"])
    assert re.fullmatch(r"Total : [\d.]+ [KMGT]iB, Free : [\d.]+ [KMGT]iB\.", state["commitLogDirCapacity"])


async def test_changed_settings_are_saved_where_the_settings_came_from(runtime: SimulatedRuntime) -> None:
    text = "# ours\nbrokerName=broker-a\nfileReservedTime = 48\n"
    runtime.files.write_atomic("/etc/broker.conf", text.encode())
    async with Broker(runtime, broker_config(broker_config_path="/etc/broker.conf")) as broker:
        peer = BrokerPeer(broker.runtime)
        changes = b"fileReservedTime=5\nautoCreateTopicEnable=false"
        await peer.ok(RequestCode.UPDATE_BROKER_CONFIG, changes)
        saved = runtime.files.read_bytes("/etc/broker.conf").decode()
        assert saved == ("# ours\nbrokerName=broker-a\nfileReservedTime=5\nautoCreateTopicEnable=false\n")
        refused = await peer.call(RequestCode.UPDATE_BROKER_CONFIG, b"fileReservedTime=x")
        assert refused.code == ResponseCode.NO_PERMISSION
        assert runtime.files.read_bytes("/etc/broker.conf").decode() == saved
        await peer.client.close()
    config, _ = BrokerConfig.load(saved, path="/etc/broker.conf")
    assert (config.file_reserved_time_hours, config.auto_create_topic_enable) == (5, False)
    assert config.broker_config_path == "/etc/broker.conf"


async def test_settings_of_a_file_that_cannot_be_written_change_all_the_same(
    runtime: SimulatedRuntime, caplog: pytest.LogCaptureFixture
) -> None:
    runtime.files.fail("write_atomic", "/etc/broker.conf", error=errno.EROFS)
    async with Broker(runtime, broker_config(broker_config_path="/etc/broker.conf")) as broker:
        peer = BrokerPeer(broker.runtime)
        await peer.ok(RequestCode.UPDATE_BROKER_CONFIG, b"fileReservedTime=5")
        assert broker.config.file_reserved_time_hours == 5
        await peer.client.close()
    assert "changed settings are lost with the next start, /etc/broker.conf" in caplog.text


@pytest.mark.behaviour("RT-09")
@pytest.mark.broker(auto_create_topic_enable=False)
async def test_topics_are_made_on_demand_as_soon_as_that_is_switched_on(peer: BrokerPeer) -> None:
    """The template topic is created with the change; without it sends would be refused until the next
    start.
    """
    await peer.ok(RequestCode.UPDATE_BROKER_CONFIG, b"autoCreateTopicEnable=true")
    await peer.sent(b"x")
    await peer.ok(RequestCode.UPDATE_BROKER_CONFIG, b"autoCreateTopicEnable=false")
    assert (await peer.send(b"x", topic="U")).code == ResponseCode.TOPIC_NOT_EXIST
