"""``orbitmq mqadmin`` beside what Apache's mqadmin 5.5.0 prints (tests/interop/mqadmin-5.5.0.json)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.interop.admin_cells import masked, table_of
from tests.sockets.conftest import Command

from orbitmq import ConsumeFrom, Message
from orbitmq.sync import Consumer, Producer
from orbitmq.testing import RunningCluster

BASELINE = json.loads(
    (Path(__file__).parents[1] / "interop" / "mqadmin-5.5.0.json").read_text(encoding="utf-8")
)
Mqadmin = Callable[[str], str]


@pytest.fixture
def mqadmin(orbitmq_cluster: RunningCluster, monkeypatch: pytest.MonkeyPatch, command: Command) -> Mqadmin:
    """Runs a command at that cluster; ADDRESS is that of its broker."""
    monkeypatch.setenv("NAMESRV_ADDR", orbitmq_cluster.name_server)
    address = json.loads(command("broker", "list", "--json"))["brokers"][0]["address"]

    def run(line: str) -> str:
        words = [address if word == "ADDRESS" else word for word in line.split(" ")]
        return command("mqadmin", *words)

    return run


def apache(conversation: str, line: str) -> str:
    """What Apache's printed."""
    return str(BASELINE["conversations"][conversation][line])


def same(mqadmin: Mqadmin, conversation: str, line: str) -> str:
    """Run a command that prints what Apache's does, but for addresses, ids, times and rates."""
    printed = mqadmin(line)
    assert masked(printed) == masked(apache(conversation, line)), line
    return printed


def put_six(servers: str, topic: str) -> None:
    """Two messages in each of the first three queues."""
    with Producer("interop_producer", name_servers=servers) as producer:
        queues = sorted(producer.queues(topic))
        for number in range(6):
            producer.send(Message(topic, b"%d" % number), queue=queues[number % 3])


def read_six(servers: str, topic: str, group: str) -> None:
    with Consumer(group, name_servers=servers, consume_from=ConsumeFrom.FIRST) as consumer:
        consumer.subscribe(topic)
        for number, message in enumerate(consumer.messages(auto_ack=False), 1):
            message.ack()
            if number == 6:
                break


one_broker = pytest.mark.parametrize("orbitmq_cluster", [{"brokers": 1}], indirect=True)


@one_broker
@pytest.mark.behaviour("CS-32")
def test_topics_routes_and_progress_are_printed_as_apaches(
    mqadmin: Mqadmin, orbitmq_cluster: RunningCluster
) -> None:
    servers = orbitmq_cluster.name_server
    same(mqadmin, "basics", "updateTopic -b ADDRESS -t admin_topic -r 4 -w 4 -p 6")
    route = same(mqadmin, "basics", "topicRoute -t admin_topic")
    # Tabs and the order of the keys count, too.
    hidden = re.compile(r"127\.0\.0\.1:\d+")
    assert hidden.sub("", route) == hidden.sub("", apache("basics", "topicRoute -t admin_topic"))
    put_six(servers, "admin_topic")
    read_six(servers, "admin_topic", "admin_group")
    same(mqadmin, "basics", "topicStatus -t admin_topic")
    same(mqadmin, "basics", "consumerProgress -g admin_group")
    assert "admin_topic" in mqadmin("topicList").split()
    title, row = mqadmin("clusterList").splitlines()
    assert title.split()[:5] == ["#Cluster", "Name", "#Broker", "Name", "#BID"]
    assert row.split()[:3] == ["DefaultCluster", "broker-a", "0"]
    assert len(mqadmin("clusterList -m").splitlines()) == 2
    assert "admin_topic" in mqadmin("topicList -c")
    assert "Total:" in mqadmin("topicRoute -t admin_topic -l")
    assert "admin_group" in mqadmin("consumerProgress")


@one_broker
@pytest.mark.behaviour("CS-32")
def test_changes_are_made_and_said_as_apaches(mqadmin: Mqadmin, orbitmq_cluster: RunningCluster) -> None:
    servers = orbitmq_cluster.name_server
    same(mqadmin, "more", "updateTopic -c DefaultCluster -t admin_more -r 4 -w 4")
    same(mqadmin, "more", "updateSubGroup -b ADDRESS -g admin_more_group")
    put_six(servers, "admin_more")
    read_six(servers, "admin_more", "admin_more_group")
    for line in (
        "topicClusterList -t admin_more",
        "resetOffsetByTime -t admin_more -g admin_more_group -s 0",
        "wipeWritePerm -b broker-a",
        "addWritePerm -b broker-a",
    ):
        same(mqadmin, "more", line)
    assert "from 6 to 4" in mqadmin("updateTopicPerm -b ADDRESS -t admin_more -p 4")
    assert "perm=R--" in mqadmin("updateTopicPerm -b ADDRESS -t admin_more -p 4")
    assert "isOrder=true, orderConf=[broker-a:2]" in mqadmin(
        "updateTopic -c DefaultCluster -t sorted -r 2 -w 2 -o true"
    )
    assert "reset consumer offset to 1" in mqadmin(
        "resetOffsetByTime -t admin_more -g admin_more_group -s now -b ADDRESS -q 0 -o 1"
    )
    assert "#offset" in mqadmin("skipAccumulatedMessage -t admin_more -g admin_more_group")
    mqadmin("updateSubGroup -c DefaultCluster -g other")
    assert "clone group offset success" in mqadmin(
        "cloneGroupOffset -s admin_more_group -d other -t admin_more"
    )
    assert "success" in mqadmin("deleteSubGroup -b ADDRESS -g other -r true")
    same(mqadmin, "more", "deleteTopic -c DefaultCluster -t admin_more")


@one_broker
@pytest.mark.behaviour("CS-32")
def test_brokers_and_name_servers_show_their_state(mqadmin: Mqadmin) -> None:
    status = table_of(mqadmin("brokerStatus -b ADDRESS"))
    assert BASELINE["tables"]["brokerStatus"].keys() - status.keys() <= {
        "commitLogDiskRatio_FOLDER/store/commitlog"
    }
    settings = table_of(mqadmin("getBrokerConfig -b ADDRESS"))
    assert settings["brokerName"] == "broker-a"
    printed = mqadmin("updateBrokerConfig -b ADDRESS -k autoCreateTopicEnable -v false")
    assert masked(printed) == ["update broker config success, ADDRESS"]
    assert table_of(mqadmin("getBrokerConfig -c DefaultCluster"))["autoCreateTopicEnable"] == "false"
    assert "kvConfigPath" in mqadmin("getNamesrvConfig")
    assert "#MasterCommitLogMaxOffset" in mqadmin("haStatus -b ADDRESS")


@one_broker
@pytest.mark.behaviour("CS-32")
def test_connected_clients_are_printed_as_apaches(mqadmin: Mqadmin, orbitmq_cluster: RunningCluster) -> None:
    servers = orbitmq_cluster.name_server
    mqadmin("updateTopic -c DefaultCluster -t admin_clients -r 4 -w 4")
    with Consumer("admin_clients_group", name_servers=servers, consume_from=ConsumeFrom.FIRST) as consumer:
        consumer.subscribe("admin_clients", "even || odd")
        with Producer("interop_producer", name_servers=servers) as producer:
            producer.send(Message("admin_clients", b"one", tags="odd"))
            next(iter(consumer))
            printed = mqadmin("producerConnection -g interop_producer -t admin_clients")
            assert re.fullmatch(r"0001  \S+ +127\.0\.0\.1:\d+ +PYTHON +V5_\d_\d\n", printed)
            lines = mqadmin("consumerConnection -g admin_clients_group").splitlines()
    theirs = apache("clients", "consumerConnection -g admin_clients_group").splitlines()
    assert lines[0] == theirs[0]
    # Java's order of subscriptions is that of a hash table.
    assert sorted(line.split() for line in lines[2:]) == sorted(line.split() for line in theirs[2:])
    title = mqadmin("statsAll -t admin_clients").splitlines()[0]
    assert title == apache("clients", "statsAll -t admin_clients").splitlines()[0]


@one_broker
@pytest.mark.behaviour("CS-33")
@pytest.mark.parametrize(
    ("line", "code", "says"),
    [
        ("queryMsgTraceById -i X", 2, "queryMsgTraceById is not offered: see 'orbitmq message trace --help'"),
        ("updateStaticTopic -t x", 2, "updateStaticTopic is not offered by OrbitMQ"),
        ("topicLst", 2, "mqadmin has no command topicLst: did you mean topicList?"),
        ("topicStatus", 2, "the following arguments are required: -t/--topic"),
        ("updateTopic -t x", 2, "give -b with the address of a broker, or -c with the name of a cluster"),
        ("updateTopic -t x -b a:1 -c c", 2, "give -b with the address of a broker, or -c"),
        ("updateTopic -t x -c DefaultCluster -r many", 2, "-r many: expected a whole number"),
        ("updateTopic -t x -c DefaultCluster -o maybe", 2, "maybe: expected true or false"),
        ("updateTopic -t x -c DefaultCluster -a x", 2, "-a x: expected +name=value or -name"),
        ("updateTopic -t x -c nosuch", 2, "-c nosuch: no cluster of this name has a broker"),
        ("updateSubGroup -g x -c DefaultCluster -p {", 2, "-p {: "),
        ("topicStatus -t nosuch", 1, "no broker has the topic nosuch"),
        ("consumerConnection -g nosuch", 1, "the consumer group[nosuch] not online"),
        ("resetOffsetByTime -t x -g y -s soon", 2, "-s soon: expected now, milliseconds or"),
        ("resetOffsetByTime -t x -g y -s 2026-13-01#00:00:00:000", 2, "expected now, milliseconds or"),
        ("resetOffsetByTime -t x -g y -s 99999999999999999", 2, "expected now, milliseconds or"),
        ("resetOffsetByTime -t x -g y -s now -q 1", 2, "-b and -q name a queue of a broker"),
        ("brokerStatus -b 127.0.0.1:1", 1, "127.0.0.1:1"),
    ],
)
def test_what_cannot_be_is_one_line(
    orbitmq_cluster: RunningCluster,
    monkeypatch: pytest.MonkeyPatch,
    command: Command,
    line: str,
    code: int,
    says: str,
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", orbitmq_cluster.name_server)
    printed = command("mqadmin", *line.split(" "), code=code)
    assert says in printed
    assert len(printed.splitlines()) == 1
