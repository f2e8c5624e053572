"""The operator's view of consumer groups: members, conflicts, lag; moving them, online and offline."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

import pytest

from orbitmq import BrokerError, ConsumeFrom, Message, ReceivedMessage, ValidationError
from orbitmq.admin import Backoff, GroupSettings, Move
from orbitmq.admin.cluster_client import ClusterClient
from orbitmq.durations import instant
from orbitmq.message.model import MessageQueue
from orbitmq.testing import World
from orbitmq.transport.client import RemotingClient
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command, Language

pytestmark = pytest.mark.orbitmq(brokers=2)


async def filled(world: World, topic: str = "t", count: int = 40) -> None:
    async with world.admin() as admin:
        await admin.topics.create(topic, queues=2)
    async with world.producer() as producer:
        for number in range(count):
            await producer.send(Message(topic, b"%d" % number))


async def consumed(world: World, group: str, count: int, topic: str = "t") -> list[bytes]:
    """The bodies of ``count`` messages that a member of the group consumes before it leaves."""
    got: list[bytes] = []

    async def keep(message: ReceivedMessage) -> None:
        got.append(message.body)

    async with world.consumer(group, consume_from=ConsumeFrom.FIRST) as consumer:
        consumer.subscribe(topic)
        task = asyncio.create_task(consumer.run(keep))
        await world.until(lambda: len(got) >= count, 60)
    await task
    return got


async def test_groups_are_listed_without_rocketmqs_own(orbitmq_world: World) -> None:
    await filled(orbitmq_world, count=1)
    await consumed(orbitmq_world, "g", 1)
    async with orbitmq_world.admin() as admin:
        await admin.groups.create("made", GroupSettings(max_retries=3))
        assert (await admin.groups.list()).whole() == {
            "g": ["broker-a", "broker-b"],
            "made": ["broker-a", "broker-b"],
        }
        assert "SELF_TEST_C_GROUP" in (await admin.groups.list(system=True)).whole()
        shown = (await admin.groups.show("made")).whole()
        assert shown.settings["broker-b"].max_retries == 3
        assert (list(shown.members), shown.message_model) == ([], "")
        with pytest.raises(BrokerError, match="no broker has the group none") as unknown:
            (await admin.groups.show("none")).whole()
        assert unknown.value.code == 26
        assert str(unknown.value) == "no broker has the group none"
        with pytest.raises(BrokerError, match="none"):
            (await admin.groups.lag("none")).whole()
        assert "none" not in (await admin.groups.list()).whole()


@pytest.mark.behaviour("SH-01")
async def test_members_and_their_conflicts_are_shown(orbitmq_world: World) -> None:
    await filled(orbitmq_world)
    async with (
        orbitmq_world.consumer("g") as one,
        orbitmq_world.consumer("g") as two,
        orbitmq_world.admin() as admin,
    ):
        one.subscribe("t", "a")
        two.subscribe("t", "b")
        await orbitmq_world.sleep(2)
        shown = (await admin.groups.show("g")).whole()
        assert len(shown.members) == 2
        assert {m.language for m in shown.members} == {"PYTHON"}
        assert shown.message_model == "CLUSTERING"
        assert set(shown.subscriptions) == {"t", "%RETRY%g"}
        (conflict,) = shown.conflicts
        assert {conflict.client_id, conflict.other_client_id} == {m.client_id for m in shown.members}
        assert {conflict.wanted, conflict.other_wanted} == {"a", "b"}
        assert shown.conflict_count == 2  # one at each broker


async def test_lag_is_told_in_messages_and_in_seconds(orbitmq_world: World) -> None:
    await filled(orbitmq_world)
    await consumed(orbitmq_world, "g", 40)
    async with orbitmq_world.admin() as admin:
        queues = [one for one in (await admin.groups.lag("g")).whole() if one.queue.topic == "t"]
        assert sum(one.end for one in queues) == 40
        assert all((one.lag, one.age, one.in_flight) == (0, 0.0, 0) for one in queues)
        async with orbitmq_world.producer() as producer:
            sent = await producer.send(Message("t", b"late"))
        await orbitmq_world.sleep(30)
        queues = [one for one in (await admin.groups.lag("g", topic="t")).whole() if one.lag]
        assert [one.queue for one in queues] == [sent.queue]
        assert 29 < queues[0].age < 32


async def test_what_was_fetched_is_in_flight_only_while_a_member_is_online(orbitmq_world: World) -> None:
    """A broker keeps reporting the offset up to which a member that has left had fetched."""
    await filled(orbitmq_world)

    async def hang(_: ReceivedMessage) -> None:
        await orbitmq_world.sleep(600)

    async with orbitmq_world.admin() as admin:
        async with orbitmq_world.consumer("g", consume_from=ConsumeFrom.FIRST) as consumer:
            consumer.subscribe("t")
            handling = asyncio.ensure_future(consumer.run(hang))
            await orbitmq_world.sleep(10)
            queues = (await admin.groups.lag("g", topic="t")).whole()
            assert (sum(one.lag for one in queues), sum(one.in_flight for one in queues)) == (40, 40)
            handling.cancel()
        await orbitmq_world.sleep(5)
        queues = (await admin.groups.lag("g", topic="t")).whole()
        assert (sum(one.lag for one in queues), sum(one.in_flight for one in queues)) == (40, 0)
        report = (await admin.groups.why("g")).whole()
        assert (report.lag, report.in_flight) == (40, 0)


async def test_a_group_is_moved_and_back_while_offline(orbitmq_world: World) -> None:
    world = orbitmq_world
    await filled(world)
    await consumed(world, "g", 40)
    async with world.admin() as admin:
        moves = (await admin.groups.plan_to_first("g", "t")).whole()
        assert len(moves) == 4
        assert all(move.to == 0 for move in moves)
        assert sum(move.before or 0 for move in moves) == 40
        assert not [one for one in (await admin.groups.lag("g", topic="t")).whole() if one.lag]
        await admin.groups.move("g", moves)
        assert sum(one.lag for one in (await admin.groups.lag("g", topic="t")).whole()) == 40
        assert len(await consumed(world, "g", 40)) == 40
        back = [Move(move.queue, move.to, move.before or 0) for move in moves]
        await admin.groups.move("g", (await admin.groups.plan("g", {m.queue: 1 for m in moves})).whole())
        await admin.groups.move("g", back)
        assert not [one for one in (await admin.groups.lag("g", topic="t")).whole() if one.lag]


async def test_a_group_is_moved_while_members_are_online(orbitmq_world: World) -> None:
    world = orbitmq_world
    await filled(world)
    got: list[bytes] = []

    async def keep(message: ReceivedMessage) -> None:
        got.append(message.body)

    async with world.consumer("g", consume_from=ConsumeFrom.FIRST) as consumer, world.admin() as admin:
        consumer.subscribe("t")
        task = asyncio.create_task(consumer.run(keep))
        await world.until(lambda: len(got) == 40, 60)
        await world.sleep(10)
        await admin.groups.move("g", (await admin.groups.plan_to_first("g", "t")).whole())
        await world.until(lambda: len(got) == 80, 60)
        await world.sleep(10)
        assert len(got) == 80
    await task


async def test_time_skip_and_clone(orbitmq_world: World) -> None:
    world = orbitmq_world
    await filled(world, count=8)
    await world.sleep(60)
    middle = instant(world.runtime.clock.now_ms())
    async with world.producer() as producer, world.admin() as admin:
        for number in range(8):
            await producer.send(Message("t", b"late %d" % number))
        await admin.groups.create("g")
        moves = (await admin.groups.plan_to_time("g", "t", middle)).whole()
        assert all(move.before is None for move in moves)
        await admin.groups.move("g", moves)
        assert sum(one.lag for one in (await admin.groups.lag("g", topic="t")).whole()) == 8
        assert await admin.groups.clone("g", "copy") == ["broker-a", "broker-b"]
        assert sum(one.lag for one in (await admin.groups.lag("copy", topic="t")).whole()) == 8
        await admin.groups.move("g", (await admin.groups.plan_to_last("g", "t")).whole())
        assert sum(one.lag for one in (await admin.groups.lag("g", topic="t")).whole()) == 0
        assert sum(one.lag for one in (await admin.groups.lag("copy", topic="t")).whole()) == 8


async def test_at_apaches_brokers_the_offsets_of_each_topic_are_cloned(
    orbitmq_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Apache's brokers answer a request without a topic with success, and set no offset."""
    for topic in ("t", "u"):
        await filled(orbitmq_world, topic)
        await consumed(orbitmq_world, "g", 40, topic)
    ask = ClusterClient.ask

    async def of_apache(cluster: ClusterClient, to: str, command: Command, **options: Any) -> Command:
        if command.code == RequestCode.CLONE_GROUP_OFFSET and not command.ext.get("topic"):
            return Command(0)
        return await ask(cluster, to, command, **options)

    monkeypatch.setattr(ClusterClient, "ask", of_apache)
    monkeypatch.setattr(ClusterClient, "is_orbitmq", lambda *_: False)
    async with orbitmq_world.admin() as admin:
        assert await admin.groups.clone("g", "copy") == ["broker-a", "broker-b"]
        lags = (await admin.groups.lag("copy")).whole()
        assert {one.queue.topic for one in lags} == {"t", "u"}
        assert sum(one.committed for one in lags) == 80


async def test_a_group_without_offsets_is_not_cloned(orbitmq_world: World) -> None:
    world = orbitmq_world
    await filled(world)
    await consumed(world, "copy", 40)
    async with world.admin() as admin:
        with pytest.raises(ValidationError, match=r"group nosuch has committed no offset$"):
            await admin.groups.clone("nosuch", "copy")
        await admin.groups.create("new")
        with pytest.raises(ValidationError, match=r"group new has committed no offset$"):
            await admin.groups.clone("new", "copy")
        with pytest.raises(ValidationError, match=r"group copy has committed no offset in topic other$"):
            await admin.groups.clone("copy", "new", topic="other")
        assert sum(one.lag for one in (await admin.groups.lag("copy", topic="t")).whole()) == 0


@pytest.mark.behaviour("MO-23")
async def test_a_group_that_gets_anothers_offsets_goes_on_there(orbitmq_world: World) -> None:
    """Neither the commits of online members nor an earlier reset override the copied offsets, and no lag
    counts in the other group's retry topic.
    """
    world = orbitmq_world
    await filled(world)
    got: list[bytes] = []

    async def keep(message: ReceivedMessage) -> None:
        got.append(message.body)

    await consumed(world, "waits", 40)
    async with world.consumer("copy", consume_from=ConsumeFrom.FIRST) as consumer, world.admin() as admin:
        consumer.subscribe("t")
        task = asyncio.create_task(consumer.run(keep))
        await world.until(lambda: len(got) == 40, 60)
        await admin.groups.create("g")
        assert len(await consumed(world, "g", 40)) == 40
        await admin.groups.move("g", (await admin.groups.plan_to_first("g", "t")).whole())
        await admin.groups.move("waits", (await admin.groups.plan_to_last("waits", "t")).whole())
        for target in ("copy", "waits"):
            await admin.groups.clone("g", target)
            assert {one.queue.topic for one in (await admin.groups.lag(target)).whole()} <= {
                "t",
                f"%RETRY%{target}",
            }
        await world.until(lambda: len(got) == 80, 60)
        await world.sleep(10)
        assert len(got) == 80
        assert len(await consumed(world, "waits", 40)) == 40
    await task


@pytest.mark.behaviour("SB-19")
async def test_a_group_that_is_made_again_does_not_handle_its_old_retries_again(
    orbitmq_world: World,
) -> None:
    """Without offsets the group would start at the beginning of its retry topic, and handle each message
    there again.
    """
    world = orbitmq_world
    await filled(world, count=1)
    seen: list[int] = []

    async def fail_once(message: ReceivedMessage) -> None:
        seen.append(message.reconsume_times)
        if not message.reconsume_times:
            raise RuntimeError("not now")

    async def life() -> None:
        async with world.consumer("g", consume_from=ConsumeFrom.FIRST) as consumer:
            consumer.subscribe("t")
            task = asyncio.create_task(consumer.run(fail_once))
            await world.sleep(60)
        await task

    async with world.admin() as admin:
        await life()
        assert seen == [0, 1]
        await admin.groups.delete("g", clean_offsets=True)
        assert not [one for one in world.brokers.values() if "g" in one.services.groups]
        await life()
        assert seen == [0, 1, 0, 1]  # the delivery of a new group, and its retry


async def test_what_a_queue_does_not_have_is_refused_before_anything_moves(orbitmq_world: World) -> None:
    await filled(orbitmq_world)
    async with orbitmq_world.admin() as admin:
        await admin.groups.create("g")
        ends = {move.queue: move.to for move in (await admin.groups.plan_to_last("g", "t")).whole()}
        queue, end = next(iter(ends.items()))
        with pytest.raises(ValidationError, match=f"has the offsets 0 to {end}, not {end + 1}"):
            (await admin.groups.plan("g", {queue: end + 1})).whole()
        with pytest.raises(ValidationError, match=r"there is no queue t broker-a\[7\]"):
            (await admin.groups.plan("g", {MessageQueue("t", "broker-a", 7): 0})).whole()
        with pytest.raises(BrokerError, match="no broker has the topic none"):
            (await admin.groups.plan_to_first("g", "none")).whole()


@pytest.mark.orbitmq(settings={"useServerSideResetOffset": "false"})
async def test_a_broker_that_moves_no_group_by_itself(orbitmq_world: World) -> None:
    world = orbitmq_world
    await filled(world)
    await consumed(world, "g", 40)
    async with world.admin() as admin:
        moves = (await admin.groups.plan_to_first("g", "t")).whole()
        async with world.consumer("g") as consumer:
            consumer.subscribe("t")
            await world.sleep(5)
            with pytest.raises(ValidationError, match="members of g are online"):
                await admin.groups.move("g", moves)
        await admin.groups.move("g", moves)
    assert len(await consumed(world, "g", 40)) == 40


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The codes of the requests of all clients, in the order in which they are made."""
    codes: list[int] = []
    request = RemotingClient.request

    async def noted(client: RemotingClient, to: str, command: Command, timeout_ms: int) -> Command:
        codes.append(command.code)
        return await request(client, to, command, timeout_ms)

    monkeypatch.setattr(RemotingClient, "request", noted)
    return codes


async def test_one_groups_settings_are_asked_for_and_no_whole_table(
    orbitmq_world: World, asked: list[int]
) -> None:
    async with orbitmq_world.admin() as admin:
        settings = GroupSettings(max_retries=3, retry_delays=(1.5, 60), consume_timeout=300)
        await admin.groups.create("g", settings)
        shown = (await admin.groups.show("g")).whole()
        assert shown.settings == {"broker-a": settings, "broker-b": settings}
        assert (await admin.groups.lag("g")).whole() == []
        with pytest.raises(BrokerError, match="no broker has the group none"):
            (await admin.groups.lag("none")).whole()
    assert RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG in asked
    assert RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG not in asked


async def test_brokers_of_apache_give_their_table_as_a_question_about_a_group_makes_it(
    orbitmq_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers before 5.0 have no request for one group."""
    request = RemotingClient.request

    async def java(client: RemotingClient, to: str, command: Command, timeout_ms: int) -> Command:
        assert command.code != RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG
        answer = await request(client, to, command, timeout_ms)
        answer.language = Language.JAVA
        return answer

    monkeypatch.setattr(RemotingClient, "request", java)
    async with orbitmq_world.admin() as admin:
        await admin.groups.create("g", GroupSettings(max_retries=3))
        assert (await admin.groups.show("g")).whole().settings["broker-a"].max_retries == 3
        with pytest.raises(BrokerError, match="no broker has the group none"):
            (await admin.groups.show("none")).whole()


@pytest.mark.orbitmq(brokers=1)
async def test_the_lag_of_many_topics_is_asked_side_by_side(
    orbitmq_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queries for the topics run at the same time instead of one after the other."""
    world = orbitmq_world
    request, under_way, most = RemotingClient.request, 0, 0

    async def slow(client: RemotingClient, to: str, command: Command, timeout_ms: int) -> Command:
        nonlocal under_way, most
        if command.code == RequestCode.QUERY_CONSUME_TIME_SPAN:
            under_way += 1
            most = max(most, under_way)
            await world.sleep(0.5)
            under_way -= 1
        return await request(client, to, command, timeout_ms)

    async with world.admin() as admin:
        for number in range(5):
            await filled(world, f"t{number}", 1)
        async with world.consumer("g", consume_from=ConsumeFrom.FIRST) as consumer:
            for number in range(5):
                consumer.subscribe(f"t{number}")
            running = asyncio.create_task(consumer.run(_handled))
            await world.sleep(10)
        await running
        monkeypatch.setattr(RemotingClient, "request", slow)
        lags = (await admin.groups.lag("g")).whole()
    assert {f"t{number}" for number in range(5)} <= {one.queue.topic for one in lags}
    assert most >= 5


async def _handled(message: ReceivedMessage) -> None:
    """Accept the message."""


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (GroupSettings(max_retries=-1), "max_retries must be 0 to 2,147,483,647, got -1"),
        (GroupSettings(retry_queues=2000), "retry_queues must be 0 to 1,024, got 2000"),
        (GroupSettings(consume_timeout=90), "consume_timeout must be whole minutes, got 90 seconds"),
        (GroupSettings(consume_timeout=900_000), "for 900,000 milliseconds write 900"),
        (
            GroupSettings(retry_delays=()),
            "retry_delays must be a list of one delay or more, a Backoff or None",
        ),
        (GroupSettings(retry_delays=(1, -1)), "retry_delays must be 0 to 86,400 seconds"),
        (GroupSettings(retry_delays="10s"), "retry_delays must be 0 to 86,400 seconds, as a number"),  # type: ignore[arg-type]
        (GroupSettings(retry_delays=5), "retry_delays must be a list of one delay or more"),  # type: ignore[arg-type]
        (GroupSettings(retry_delays=Backoff(factor=0)), "factor of retry_delays must be 1 to"),
        (
            GroupSettings(retry_delays=Backoff(first=0)),
            "first of retry_delays must be 0.001 to 86,400 seconds",
        ),
        (GroupSettings(retry_delays=Backoff(longest="x")), "longest of retry_delays must be"),  # type: ignore[arg-type]
        (GroupSettings(orderly="yes"), "orderly must be bool, got 'yes'"),  # type: ignore[arg-type]
        (GroupSettings(attributes={"a": 1}), "attributes must be a mapping of texts"),  # type: ignore[dict-item]
        (GroupSettings(attributes="a=b"), "attributes must be a mapping of texts"),  # type: ignore[arg-type]
    ],
)
async def test_settings_out_of_range_are_refused_with_name_and_range(
    orbitmq_world: World, settings: GroupSettings, text: str
) -> None:
    async with orbitmq_world.admin() as admin:
        with pytest.raises(ValidationError, match=text):
            await admin.groups.create("g", settings)
        with pytest.raises(ValidationError, match="time must have a time zone"):
            (await admin.groups.plan_to_time("g", "t", datetime(2026, 1, 1))).whole()
