"""The broker's tables: their files as RocketMQ writes and reads them, and their promises."""

from __future__ import annotations

import json

import pytest

from orbitmq.broker.change_feed import OFFSETS, ChangeFeed
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.events import Events, TopicChanged
from orbitmq.broker.metadata.groups import SubscriptionGroups
from orbitmq.broker.metadata.offsets import ConsumerOffsets
from orbitmq.broker.metadata.pretty import body_text, pretty
from orbitmq.broker.metadata.topics import TopicConfigs
from orbitmq.testing.machine.simulated import simulated_runtime
from orbitmq.wire import fastjson
from orbitmq.wire.bodies.group import SubscriptionGroupConfig
from orbitmq.wire.bodies.topic import MadeAt, TopicConfig
from orbitmq.wire.errors import RemotingError

# consumerOffset.json as RocketMQ's ConfigManager.persist writes it.
OFFSETS_FILE = b"""{
\t"dataVersion":{
\t\t"counter":3,
\t\t"stateVersion":0,
\t\t"timestamp":1700000000000
\t},
\t"offsetTable":{
\t\t"%RETRY%cg@cg":{},
\t\t"TopicA@cg":{
\t\t\t0:11,
\t\t\t1:12,
\t\t\t10:13
\t\t}
\t}
}"""


def parts(config: BrokerConfig | None = None) -> tuple[ChangeFeed, TopicConfigs, SubscriptionGroups, Events]:
    clock = simulated_runtime().clock
    feed, events = ChangeFeed(), Events()
    config = config or BrokerConfig()
    groups = SubscriptionGroups(clock, config, feed, events)
    return feed, TopicConfigs(clock, config, feed, events), groups, events


def offsets() -> tuple[ConsumerOffsets, list[tuple[str, object]]]:
    changes = ChangeFeed()
    seen: list[tuple[str, object]] = []
    changes.subscribe(lambda table, key, value: seen.append((f"{table}:{key}", value)))
    return ConsumerOffsets(simulated_runtime().clock, changes, Events(), version_step=2), seen


# -- files ---------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("MO-22")
def test_resets_that_wait_are_in_the_file_as_a_table_that_rocketmq_can_skip() -> None:
    table, _ = offsets()
    table.commit("g", "t", 0, 7)
    table.reset("g", "t", 0, 3)
    text = "".join(table.file_text())
    ours = text[text.index('"pendingResets"') :]
    # This part is standard JSON, unlike offsetTable, whose queue ids are bare numbers.
    assert json.loads("{" + ours) == {"pendingResets": {"t@g": {"0": 3}}}
    again, _ = offsets()
    again.restore(fastjson.loads(text.encode()))
    assert again.take_reset("g", "t", 0) == 3


def test_the_pretty_form_is_fastjsons() -> None:
    table, _ = offsets()
    table.restore(fastjson.loads(OFFSETS_FILE))
    assert "".join(table.file_text()).encode() == OFFSETS_FILE
    assert pretty({"a": [], "b": ["ü", {"x": None, "y": True}]}) == (
        '{\n\t"a":[],\n\t"b":[\n\t\t"ü",\n\t\t{\n\t\t\t"y":true\n\t\t}\n\t]\n}'.encode()
    )


def test_a_body_has_one_pretty_form() -> None:
    topic = TopicConfig("ü", 3, attributes={"b": "2", "a": "1"}, order=True)
    again = TopicConfig("again", made_at=MadeAt(7, 8))
    group = SubscriptionGroupConfig("mine", attributes={})
    for body in (topic, again, group):
        assert body_text(body, "\n").encode() == pretty(body.to_plain())
        assert type(body).from_json(body.to_plain()) == body


def test_pages_come_in_one_order_and_begin_again_after_a_change() -> None:
    _, topics, _, _ = parts()
    for number in range(7):
        topics.create_if_absent(f"t-{number}", 1)
    total, seen = len(topics), []
    while len(seen) < total:
        page = topics.page(topics.version, len(seen), 3)
        seen += page
    assert seen == [config.topic_name for config in topics]
    old = topics.version
    topics.create_if_absent("one more", 1)
    assert list(topics.page(old, 5, 2)) == seen[:2]


def test_a_topic_table_is_read_and_written() -> None:
    _, topics, _, _ = parts()
    topics.restore(
        {
            "dataVersion": {"counter": 9, "stateVersion": 0, "timestamp": 5},
            "topicConfigTable": {
                "Mine": {
                    "topicName": "Mine",
                    "perm": 4,
                    "readQueueNums": 3,
                    "writeQueueNums": 2,
                    "order": True,
                }
            },
        }
    )
    mine = topics.get("Mine")
    assert mine is not None
    assert (mine.perm, mine.read_queue_nums, mine.write_queue_nums, mine.order) == (4, 3, 2, True)
    assert topics.version.counter == 9
    written = fastjson.loads("".join(topics.file_text()))["topicConfigTable"]["Mine"]
    assert written == {
        "attributes": {},
        "order": True,
        "perm": 4,
        "readQueueNums": 3,
        "topicFilterType": "SINGLE_TAG",
        "topicName": "Mine",
        "topicSysFlag": 0,
        "writeQueueNums": 2,
    }


def test_a_group_table_is_read_and_written() -> None:
    _, _, groups, _ = parts()
    groups.update(SubscriptionGroupConfig("mine", retry_max_times=2))
    groups.set_readable("mine", "T", False)
    content = fastjson.loads("".join(groups.file_text()))
    _, _, again, _ = parts()
    again.restore(content)
    mine = again.get("mine")
    assert mine is not None
    assert mine.retry_max_times == 2
    assert not again.may_read("mine", "T")
    assert again.version == groups.version


# -- topics --------------------------------------------------------------------------------------------------


def test_the_system_topics() -> None:
    _, topics, _, _ = parts()
    shown = {t.topic_name: (t.read_queue_nums, t.perm) for t in topics}
    assert shown == {
        "TBW102": (8, 7),
        "SELF_TEST_TOPIC": (1, 6),
        "BenchmarkTest": (1024, 6),
        "DefaultCluster": (16, 7),
        "broker-a": (1, 7),
        "OFFSET_MOVED_EVENT": (1, 6),
        "SCHEDULE_TOPIC_XXXX": (18, 6),
        "DefaultCluster_REPLY_TOPIC": (1, 6),
        "rmq_sys_REVIVE_LOG_DefaultCluster": (8, 6),
        "rmq_sys_SYNC_BROKER_MEMBER_broker-a": (1, 1),
        "RMQ_SYS_TRANS_HALF_TOPIC": (1, 6),
        "RMQ_SYS_TRANS_OP_HALF_TOPIC": (1, 6),
        "rmq_sys_wheel_timer": (1, 6),
    }


def test_settings_choose_system_topics() -> None:
    config = BrokerConfig(
        auto_create_topic_enable=False,
        cluster_topic_enable=False,
        trace_topic_enable=True,
        timer_wheel_enable=False,
    )
    _, topics, _, _ = parts(config)
    assert "TBW102" not in topics
    assert "rmq_sys_wheel_timer" not in topics
    assert "RMQ_SYS_TRACE_TOPIC" in topics
    cluster = topics.get("DefaultCluster")
    assert cluster is not None
    assert cluster.perm == 1


@pytest.mark.behaviour("RT-09")
@pytest.mark.usefixtures("orbitmq_runtime")
async def test_a_template_left_from_earlier_does_not_create_topics() -> None:
    config = BrokerConfig(auto_create_topic_enable=False)
    _, topics, _, _ = parts(config)
    topics.restore({"topicConfigTable": {"TBW102": {"topicName": "TBW102", "perm": 7}}})
    assert topics.create_for_send("New", "TBW102", 4) is None
    assert topics.create_for_send("New", "DefaultCluster", 4) is not None


def test_every_change_of_a_topic_is_told_once_and_gives_a_new_version() -> None:
    changes, topics, _, events = parts()
    told: list[tuple[str, object]] = []
    changes.subscribe(lambda table, key, value: told.append((f"{table}:{key}", value)))
    heard: list[str] = []
    events.subscribe(TopicChanged, lambda event: heard.append(f"{event.topic} {event.config is not None}"))
    config = TopicConfig("T", 2, 2)
    topics.update(config)
    topics.update(TopicConfig("T", 2, 2))
    assert topics.create_if_absent("T", 9).read_queue_nums == 2
    topics.mark_order_topics(["T", "unknown"])
    assert topics.delete("T")
    assert [key for key, _ in told] == ["topics:T"] * 3
    assert heard == ["T True", "T True", "T False"]
    # Parts of the broker may still have data of a topic that the table lacks, so they are notified again.
    assert not topics.delete("T")
    assert [key for key, _ in told] == ["topics:T"] * 3
    assert heard[3:] == ["T False"]
    assert topics.version.counter == 3


def test_a_topic_keeps_where_it_was_made_until_it_is_deleted() -> None:
    """A topic from an administrator does not change it, as it may come from another broker."""
    clock, places = simulated_runtime().clock, iter(range(1, 9))
    topics = TopicConfigs(
        clock, BrokerConfig(), ChangeFeed(), Events(), lambda _topic: MadeAt(next(places), 0)
    )

    def made() -> list[MadeAt | None]:
        return [config.made_at for config in topics if not topics.is_system(config.topic_name)]

    topics.update(TopicConfig("a", 2, 2, made_at=MadeAt(99, 99)))
    topics.create_if_absent("b", 1)
    topics.create_for_send("c", "TBW102", 4)
    assert made() == [MadeAt(1), MadeAt(2), MadeAt(3)]
    topics.update(TopicConfig("a", 3, 3, made_at=MadeAt(99, 99)))
    topics.create_if_absent("b", 1, order=True)
    topics.mark_order_topics(["c"])
    assert made() == [MadeAt(1), MadeAt(2), MadeAt(3)]
    topics.delete("c")
    topics.update(TopicConfig("c", 2, 2))
    assert made() == [MadeAt(1), MadeAt(2), MadeAt(4)]


def test_a_listener_that_fails_does_not_keep_a_change_from_the_others() -> None:
    _, topics, _, events = parts()
    topics.create_if_absent("orders", 4)
    heard: list[tuple[str, bool]] = []

    def disk_refuses(_event: TopicChanged) -> None:
        raise OSError("no space left")

    events.subscribe(TopicChanged, disk_refuses)
    events.subscribe(TopicChanged, lambda event: heard.append((event.topic, event.config is None)))
    with pytest.raises(OSError, match="no space left"):
        topics.delete("orders")
    assert heard == [("orders", True)]
    assert topics.get("orders") is None


def test_attributes_change_by_their_signs() -> None:
    _, topics, _, _ = parts()
    topics.update(TopicConfig("T", attributes={"+queue.type": "SimpleCQ", "+message.type": "FIFO"}))
    topics.update(TopicConfig("T", attributes={"+message.type": "NORMAL"}))
    known = topics.get("T")
    assert known is not None
    assert known.attributes == {"queue.type": "SimpleCQ", "message.type": "NORMAL"}
    topics.update(TopicConfig("T", attributes={"-message.type": ""}))
    for changes in ({"+queue.type": "BatchCQ"}, {"-reserve.time": ""}, {"message.type": "FIFO"}):
        with pytest.raises(RemotingError):
            topics.update(TopicConfig("T", attributes=changes))
    with pytest.raises(RemotingError, match="only add"):
        topics.update(TopicConfig("New", attributes={"-message.type": ""}))
    assert "New" not in topics


# -- groups --------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("orbitmq_runtime")
async def test_groups_are_made_when_they_are_met_and_have_a_good_name() -> None:
    _, _, groups, _ = parts()
    assert "TOOLS_CONSUMER" in groups
    assert groups.find("new") is not None
    assert groups.find("bad name") is None
    assert groups.find("g" * 121) is None
    assert groups.get("other") is None


def test_without_automatic_creation_only_system_groups_are_made() -> None:
    _, _, groups, _ = parts(BrokerConfig(auto_create_subscription_group=False))
    assert groups.find("new") is None
    assert groups.find("CID_RMQ_SYS_x") is not None


# -- offsets -------------------------------------------------------------------------------------------------


def test_the_last_commit_wins_and_is_journaled() -> None:
    table, seen = offsets()
    assert table.query("g", "T", 0) is None
    table.commit("g", "T", 0, 5)
    table.commit("g", "T", 0, 3)
    assert table.query("g", "T", 0) == 3
    assert seen == [(f"{OFFSETS}:T@g@0", 5), (f"{OFFSETS}:T@g@0", 3)]
    assert table.version.counter == 1


def test_a_reset_is_taken_once() -> None:
    table, _ = offsets()
    table.commit("g", "T", 0, 5)
    table.reset("g", "T", 0, 1)
    assert table.has_reset("g", "T", 0)
    assert table.query("g", "T", 0) == 1
    assert table.take_reset("g", "T", 0) == 1
    assert table.take_reset("g", "T", 0) is None
    assert not table.has_reset("g", "T", 0)


def test_dropping_a_group_or_a_topic() -> None:
    table, _ = offsets()
    for group in ("a", "b"):
        for topic in ("T", "U"):
            table.commit(group, topic, 0, 5)
            table.note_pull(group, topic, 0, 9)
    assert table.topics_of("a") == {"T", "U"}
    assert table.groups_of("T") == {"a", "b"}
    table.drop_group("a")
    table.drop_topic("U")
    assert table.topics_of("a") == set()
    assert table.topics_of("b") == {"T"}
    assert table.pulled("b", "T", 0) == 9
    assert table.pulled("b", "U", 0) is None


def test_what_a_topic_and_a_group_share_is_found_without_a_search() -> None:
    table, _ = offsets()
    table.restore({"offsetTable": {"T@a": {"0": 1}, "T@b": {"0": 1}, "U@a": {"0": 1}}})
    table.note_pull("c", "T", 0, 5, started=1)
    table.note_pull_start("d", "U", 0, 3)
    assert table.groups_of("T") == {"a", "b"}  # the groups that have committed
    assert table.topics_of("a") == {"T", "U"}
    table.drop_topic("T")
    assert table.groups_of("T") == set()
    assert table.topics_of("a") == {"U"}
    assert table.pulls() == {}
    table.drop_group("d")
    assert table.pull_starts() == {}
    table.drop_group("nobody")
    table.drop_topic("T")
    table.commit("a", "T", 1, 7)
    assert table.groups_of("T") == {"a"}
