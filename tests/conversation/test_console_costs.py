"""The requests of the console's pages to brokers: one for each list, and none twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.conversation.console_browser import opened, sent

from orbitmq import ConsumeFrom
from orbitmq.admin import Admin, GroupSettings
from orbitmq.admin.cluster_client import SIDE_BY_SIDE, ClusterClient
from orbitmq.message.reserved import dead_letter_topic
from orbitmq.testing import World
from orbitmq.wire.codes import RequestCode as Code
from orbitmq.wire.command import Command

# Fields of requests that Apache's brokers ignore.
NEW_TO_APACHE = ("sumBy", "consumers", "groupSeq", "topicSeq", "dataVersion", "maxGroupNum", "maxTopicNum")
# Codes of lists that are long in a large cluster.
STATES, LAGS, GROUPS, TOPICS = (
    Code.GET_BROKER_RUNTIME_INFO,
    Code.GET_BROKER_CONSUME_STATS,
    Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    Code.GET_ALL_TOPIC_CONFIG,
)


@contextmanager
def asked(*, as_apache: bool = False) -> Iterator[list[tuple[int, int]]]:
    """Record the requests to brokers inside this context: the code, and the size of the response in bytes.

    Args:
        as_apache: leave out the fields that Apache's brokers ignore.
    """
    codes: list[tuple[int, int]] = []
    ask = ClusterClient.ask

    async def heard(cluster: ClusterClient, address: str, command: Command, *, least_ms: int = 0) -> Command:
        if as_apache:
            for name in NEW_TO_APACHE:
                command.ext.pop(name, None)
        answer = await ask(cluster, address, command, least_ms=least_ms)
        codes.append((command.code, len(answer.body)))
        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ClusterClient, "ask", heard)
        yield codes


def counts(codes: list[tuple[int, int]]) -> Counter[int]:
    return Counter(code for code, _ in codes)


async def filled(world: World) -> None:
    """Create groups g1 and g2 that are behind in t; g2 is behind in u, too."""
    for topic in ("t", "u"):
        await sent(world, topic, *[b"1"] * 4)
    for group, topics in (("g1", "t"), ("g2", "tu")):
        async with world.consumer(group, consume_from=ConsumeFrom.FIRST) as consumer:
            for topic in topics:
                consumer.subscribe(topic)
            await world.sleep(10)
    for topic in ("t", "u"):
        await sent(world, topic, *[b"more"] * 6)


@pytest.mark.orbitmq(brokers=2)
@pytest.mark.behaviour("CS-47")
@pytest.mark.parametrize("as_apache", [False, True])
async def test_lags_by_topic_are_the_sums_of_the_queues(orbitmq_world: World, as_apache: bool) -> None:
    await filled(orbitmq_world)
    async with orbitmq_world.admin() as admin, orbitmq_world.simple_consumer("g3") as consumer:
        consumer.subscribe("u")
        assert len(await consumer.receive(5, 60, wait=5)) == 5
        with asked(as_apache=as_apache) as codes:
            found = (await admin.groups.topic_lags()).whole()
        assert counts(codes) == {LAGS: 2}
        sums: dict[tuple[str, str, str], list[int]] = {}
        for one in (await admin.groups.progress()).whole():
            both = sums.setdefault((one.group, one.queue.topic, one.queue.broker_name), [0, 0])
            both[0] += one.lag
            both[1] += one.end
        assert {(one.group, one.topic, one.broker_name): [one.lag, one.end] for one in found} == sums
        lags = (await admin.groups.lags()).whole()
        assert (lags["g1"], lags["g2"]) == (10, 20)
        assert lags["g3"] >= 5, "messages in flight count"
        for topic in "tu":
            wanted = [one for one in (await admin.groups.progress()).whole() if one.queue.topic == topic]
            assert (await admin.groups.progress(topic=topic)).whole() == wanted
        assert (await admin.groups.progress(topic="none")).whole() == []


@pytest.mark.orbitmq(brokers=2)
@pytest.mark.behaviour("CS-47")
async def test_tables_of_topics_and_groups_are_sent_again_only_when_they_changed(
    orbitmq_world: World,
) -> None:
    async with orbitmq_world.admin() as admin, orbitmq_world.admin() as other:
        for number in range(20):
            await admin.topics.create(f"t{number}", queues=1)
            await admin.groups.create(f"g{number}", GroupSettings(max_retries=number % 3))

        async def both() -> object:
            return (await admin.topics.settings()).whole(), (await admin.groups.settings()).whole()

        with asked() as codes:
            first = await both()
        long = sum(size for _, size in codes)
        assert counts(codes) == {GROUPS: 2, TOPICS: 2}
        with asked() as codes:
            assert await both() == first
        assert counts(codes) == {GROUPS: 2, TOPICS: 2}
        assert sum(size for _, size in codes) < long / 10
        with asked(as_apache=True) as codes:
            assert await both() == first
        assert sum(size for _, size in codes) == long
        await other.topics.create("t7", queues=5)
        await other.groups.delete("g7")
        with asked() as codes:
            topics, groups = (await admin.topics.settings()).whole(), (await admin.groups.settings()).whole()
        assert counts(codes) == {GROUPS: 4, TOPICS: 4}
        assert {one.queues for one in topics["t7"].values()} == {5}
        assert "g7" not in groups
        assert {name: own["broker-a"].max_retries for name, own in groups.items()} == {
            f"g{number}": number % 3 for number in range(20) if number != 7
        }
        # A broker that was restarted sends its current table.
        await orbitmq_world.stop_broker("broker-b")
        await orbitmq_world.start_broker("broker-b")
        await orbitmq_world.sleep(1)
        await other.groups.create("late")
        assert set((await admin.groups.settings()).whole()["late"]) == {"broker-a", "broker-b"}


async def shown(admin: Admin) -> list[tuple[str, str, str, tuple[str, ...]]]:
    """The clients without their addresses, one per connection."""
    found = (await admin.clients.list()).whole()
    return [(one.role, one.group, one.client_id, tuple(one.brokers)) for one in found]


@pytest.mark.orbitmq(brokers=2)
@pytest.mark.behaviour("CS-47")
async def test_consumers_of_all_groups_come_in_one_answer(orbitmq_world: World) -> None:
    await filled(orbitmq_world)
    async with (
        orbitmq_world.admin() as admin,
        orbitmq_world.producer() as producer,
        orbitmq_world.consumer("g1") as consumer,
    ):
        consumer.subscribe("t")
        await orbitmq_world.sleep(35)
        await sent(orbitmq_world, "t", b"1")
        with asked() as codes:
            found = await shown(admin)
        assert counts(codes) == {Code.GET_ALL_PRODUCER_INFO: 2}
        assert [one[:2] for one in found if one[0] == "consumer"] == [("consumer", "g1")]
        assert all(one[3] == ("broker-a", "broker-b") for one in found if one[0] == "consumer")
        assert producer is not None
        with asked(as_apache=True) as codes:
            assert await shown(admin) == found
        assert counts(codes)[Code.GET_CONSUMER_CONNECTION_LIST] >= 2
        [one] = [one for one in (await admin.clients.list(group="g1")).whole() if one.role == "consumer"]
        assert one.group == "g1"


@pytest.mark.behaviour("CS-47")
async def test_a_broker_is_asked_about_a_few_groups_with_dead_letters_at_a_time(
    orbitmq_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(40):
        await sent(orbitmq_world, dead_letter_topic(f"g{number}"), b"1")
    now = most = 0
    ask = ClusterClient.ask

    async def counted(
        cluster: ClusterClient, address: str, command: Command, *, least_ms: int = 0
    ) -> Command:
        nonlocal now, most
        now += 1
        most = max(most, now)
        try:
            return await ask(cluster, address, command, least_ms=least_ms)
        finally:
            now -= 1

    monkeypatch.setattr(ClusterClient, "ask", counted)
    async with opened(orbitmq_world) as browser:
        page = await browser.json("/dead-letters")
    assert {one["group"]: one["count"] for one in page["groups"]} == {f"g{n}": 1 for n in range(40)}
    assert most == SIDE_BY_SIDE


@pytest.mark.orbitmq(brokers=2)
@pytest.mark.behaviour("CS-48")
async def test_pages_share_the_answers_that_several_of_them_need(orbitmq_world: World) -> None:
    await filled(orbitmq_world)
    async with opened(orbitmq_world, write=True) as browser:
        with asked() as codes:
            for path in ("/", "/charts", "/brokers", "/groups", "/"):
                await browser.get(path)
        assert counts(codes) == {STATES: 2, LAGS: 2, GROUPS: 2}
        # The pages of groups and topics are computed again when the lags on them are.
        await orbitmq_world.sleep(1)
        await browser.get("/topics")
        await orbitmq_world.sleep(1.5)
        with asked() as codes:
            for path in ("/groups", "/topics"):
                await browser.get(path)
        assert counts(codes) == {LAGS: 2, GROUPS: 2, TOPICS: 2}
        # The viewer's own change is visible at once, on every page.
        await browser.done("group-save", {"group": "new", "retries": "3"})
        assert "new" in [one["group"] for one in (await browser.json("/groups"))["groups"]]


@pytest.mark.orbitmq(brokers=2)
@pytest.mark.behaviour("CS-48")
async def test_the_page_of_a_topic_or_group_asks_about_nothing_else(orbitmq_world: World) -> None:
    await filled(orbitmq_world)
    async with opened(orbitmq_world) as browser:
        with asked() as codes:
            page = await browser.json("/topics/u")
        assert [(one["group"], one["lag"]) for one in page["groups"]] == [("g2", 10)]
        found = counts(codes)
        assert (found[LAGS], found[Code.QUERY_TOPIC_CONSUME_BY_WHO], found[Code.GET_CONSUME_STATS]) == (
            0,
            2,
            2,
        )
        with asked() as codes:
            await browser.json("/groups/g2")
        found = counts(codes)
        assert (found[LAGS], found[GROUPS], found[Code.GET_CONSUME_STATS]) == (0, 0, 2)
        assert found[Code.GET_CONSUMER_CONNECTION_LIST] <= 2
