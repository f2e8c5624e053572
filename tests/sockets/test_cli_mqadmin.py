"""``orbitmq mqadmin`` beside what Apache's mqadmin 5.5.0 prints (tests/interop/mqadmin-5.5.0.json)."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.interop.admin_cells import masked, table_of
from tests.sockets.conftest import Command

from orbitmq import ConsumeFrom, Message
from orbitmq.cli.main import main
from orbitmq.sync import Admin, Consumer, Producer
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
    read_some(servers, topic, group, 6)


def read_some(servers: str, topic: str, group: str, count: int) -> None:
    with Consumer(group, name_servers=servers, consume_from=ConsumeFrom.FIRST) as consumer:
        consumer.subscribe(topic)
        for number, message in enumerate(consumer.messages(auto_ack=False), 1):
            message.ack()
            if number == count:
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
            # A client tells a broker about itself in the background.
            line = "producerConnection -g interop_producer -t admin_clients"
            deadline = time.monotonic() + 60
            while main(["mqadmin", *line.split()]) != 0:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            printed = mqadmin(line)
            assert re.fullmatch(r"0001  \S+ +127\.0\.0\.1:\d+ +PYTHON +V5_\d_\d\n", printed)
            lines = mqadmin("consumerConnection -g admin_clients_group").splitlines()
    theirs = apache("clients", "consumerConnection -g admin_clients_group").splitlines()
    assert lines[0] == theirs[0]
    # Java's order of subscriptions is that of a hash table.
    assert sorted(line.split() for line in lines[2:]) == sorted(line.split() for line in theirs[2:])
    title = mqadmin("statsAll -t admin_clients").splitlines()[0]
    assert title == apache("clients", "statsAll -t admin_clients").splitlines()[0]


@one_broker
@pytest.mark.behaviour("CS-32")
def test_a_consumer_handles_a_message_when_it_is_told_to(
    mqadmin: Mqadmin, orbitmq_cluster: RunningCluster
) -> None:
    servers = orbitmq_cluster.name_server
    mqadmin("updateTopic -c DefaultCluster -t orders -r 1 -w 1")
    with Producer("shop", name_servers=servers) as producer:
        sent = producer.send(Message("orders", "größe".encode("latin-1")))
    find = f"queryMsgById -t orders -i {sent.offset_message_id}"
    assert "Message Body:        größe" in mqadmin(f"{find} -f latin-1")
    handled: list[str] = []
    with Consumer("billing", name_servers=servers, consume_from=ConsumeFrom.FIRST) as consumer:
        consumer.subscribe("orders")
        reading = threading.Thread(
            target=consumer.run, args=(lambda message: handled.append(message.message_id),)
        )
        reading.start()
        deadline = time.monotonic() + 60
        while not handled:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        client_id = mqadmin("consumerConnection -g billing").splitlines()[1].split()[0]
        printed = mqadmin(f"{find} -g billing -d {client_id}")
    reading.join(60)
    assert re.fullmatch(
        r"ConsumeMessageDirectlyResult \[order=false, autoCommit=true, consumeResult=CR_SUCCESS, "
        r"remark=\w+, spentTimeMills=\d+\]\n",
        printed,
    )
    assert set(handled) == {sent.message_id}
    assert len(handled) >= 2


def names_of(text: str) -> list[str]:
    """The names in front of the values, but for the body, which Apache's writes into a file."""
    return [line[:20].strip() for line in text.splitlines() if line[:20].strip() and "Body" not in line[:20]]


@one_broker
@pytest.mark.behaviour("CS-32")
def test_messages_are_found_and_printed_as_apaches(mqadmin: Mqadmin, orbitmq_cluster: RunningCluster) -> None:
    servers = orbitmq_cluster.name_server
    mqadmin("updateTopic -c DefaultCluster -t admin_keys -r 4 -w 4")
    printed = mqadmin("sendMessage -t admin_keys -p hello -k key-3 -c even -b broker-a -i 0")
    assert masked(printed) == masked(apache("more", "sendMessage -t admin_more -p hello -b broker-a -i 0"))
    unique = printed.split()[-1]
    by_offset = mqadmin("queryMsgByOffset -t admin_keys -b broker-a -i 0 -o 0")
    assert (
        names_of(by_offset)[:-1]
        == names_of(apache("more", "queryMsgByOffset -t admin_more -b broker-a -i 0 -o 0"))[:-1]
    )
    offset_id = by_offset.split()[1]
    assert "Message Body:        hello" in by_offset
    assert "Tags:                [even]\nKeys:                [key-3]\n" in by_offset
    assert by_offset.endswith("\n\nWARN: No Consumer\n")
    assert mqadmin(f"queryMsgById -t admin_keys -i {offset_id}") == by_offset
    # The index has a message a moment after it is stored.
    deadline = time.monotonic() + 60
    while not (shown := mqadmin(f"queryMsgByUniqueKey -t admin_keys -i {unique}")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert names_of(shown)[:-1] == names_of(apache("by key", "queryMsgByUniqueKey -t admin_keys -i ID"))[:-1]
    rows = mqadmin("queryMsgByKey -t admin_keys -k key-3").splitlines()
    theirs = apache("by key", "queryMsgByKey -t admin_keys -k key-3").strip("\n").splitlines()
    assert rows[0] == theirs[0]
    index = re.compile(r"(\S+) +\d+ +\d+ \d+@admin_keys@K@key-3@\1@\d+ +")
    assert index.fullmatch(rows[1])
    assert index.fullmatch(theirs[1])
    read_from = mqadmin("consumeMessage -t admin_keys -b broker-a -i 0 -o 0")
    shape = re.compile(
        r"MSGID: (\S+) MessageExt \[brokerName=broker-a, queueId=0, storeSize=\d+, queueOffset=0, sysFlag=0, "
        r"bornTimestamp=\d+, bornHost=/127\.0\.0\.1:\d+, storeTimestamp=\d+, storeHost=/127\.0\.0\.1:\d+, "
        r"msgId=[0-9A-F]{32}, commitLogOffset=\d+, bodyCRC=\d+, reconsumeTimes=0, "
        r"preparedTransactionOffset=0, toString\(\)=Message\{topic='\w+', flag=0, "
        r"properties=\{.*UNIQ_KEY=\1.*\}, body=\[[-\d, ]+\], transactionId='null'\}\] BODY: (.+)"
    )
    found = [shape.fullmatch(line) for line in read_from.splitlines()]
    assert read_from.splitlines()[0] == "Consume ok"
    assert found[1] is not None
    assert found[1][2] == "hello"
    theirs = apache("messages", "consumeMessage -t admin_messages -b broker-a -i 0 -o 0").splitlines()
    assert shape.fullmatch(theirs[1])
    last = re.compile(
        r"MessageQueue \[topic=\w+, brokerName=broker-a, queueId=0\] print msg finished\. "
        r"status=NO_NEW_MSG, offset=(\d)"
    )
    ends = [last.fullmatch(lines[-1]) for lines in (read_from.splitlines(), theirs)]
    assert [end and end[1] for end in ends] == ["1", "3"]
    all_queues = mqadmin("printMsg -t admin_keys").splitlines()
    assert all_queues[0].startswith("minOffset=0, maxOffset=1, MessageQueue [topic=admin_keys, ")
    assert shape.fullmatch(all_queues[1])
    assert len(all_queues) == 4 + 1 + 4
    assert "BODY" not in mqadmin("printMsg -t admin_keys -s odd")
    assert "BODY: NOT PRINT BODY" in mqadmin("printMsg -t admin_keys -d false")
    assert "maxOffset=0" in mqadmin("printMsg -t admin_keys -e 2001-01-01#00:00:00:000").splitlines()[0]
    read_some(servers, "admin_keys", "readers", 1)
    assert "consumerGroup=readers, trackType=NOT_ONLINE" in mqadmin(
        f"queryMsgById -t admin_keys -i {offset_id}"
    )


@one_broker
@pytest.mark.behaviour("CS-37")
def test_name_servers_modes_and_files_are_kept(mqadmin: Mqadmin, orbitmq_cluster: RunningCluster) -> None:
    servers = orbitmq_cluster.name_server
    with Admin(servers) as admin:
        admin.topics.create("kept_topic", queues=1)
        admin.groups.create("kept_group")
    key = "waitSecondsForService"
    assert mqadmin(f"updateNamesrvConfig -k {key} -v 40") == (
        f"update name server config success!\n{key} : 40\n"
    )
    assert mqadmin(f"updateNamesrvConfig -n {servers} -k {key} -v 50") == (
        f"update name server config success![{servers}]\n{key} : 50\n"
    )
    assert f"{key:<50}=  50" in mqadmin("getNamesrvConfig")
    assert mqadmin("updateKvConfig -s ORDER_TOPIC_CONFIG -k kept_topic -v broker-a:1") == (
        "create or update kv config to namespace success.\n"
    )
    assert mqadmin("deleteKvConfig -s ORDER_TOPIC_CONFIG -k kept_topic") == (
        "delete kv config from namespace success.\n"
    )
    for mode, shared in (("POP", 2), ("PULL", 0)):
        lines = mqadmin(f"setConsumeMode -c DefaultCluster -t kept_topic -g kept_group -m {mode} -q {shared}")
        first, second = lines.splitlines()
        assert re.fullmatch(r"set consume mode to [0-9.:]+ success\.", first)
        assert second == (
            f"topic[kept_topic] group[kept_group] consume mode[{mode}] popShareQueueNum[{shared}]"
        )
    for name in ("cleanExpiredCQ", "cleanUnusedTopic", "deleteExpiredCommitLog"):
        for place in ("", " -b ADDRESS", " -c DefaultCluster"):
            assert mqadmin(name + place) == "success\n"


@one_broker
@pytest.mark.behaviour("CS-33")
@pytest.mark.parametrize(
    ("line", "code", "says"),
    [
        ("queryMsgTraceById -i X", 2, "queryMsgTraceById is not offered: see 'orbitmq message trace --help'"),
        ("updateStaticTopic -t x", 2, "updateStaticTopic is not offered by OrbitMQ"),
        ("setConsumeMode -c c -t x -g y -m PUSH", 2, "-m PUSH: expected PULL or POP"),
        ("setConsumeMode -c c -t x -g y -m POP -q some", 2, "-q some: expected a whole number"),
        ("cleanExpiredCQ -c nosuch", 2, "-c nosuch: no cluster of this name has a broker"),
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
        ("queryMsgById -t x -i X -g y", 2, "-g and -d name a consumer: give both or none"),
        ("clusterList -i 0", 2, "-i 0: expected 1 to 86400 seconds"),
        ("haStatus -c DefaultCluster -i soon", 2, "-i soon: expected a whole number"),
        ("consumeMessage -t x -i 0", 2, "-i needs -b: the broker of the queue"),
        ("consumeMessage -t x -b broker-a -o 0", 2, "-o needs -i: the queue of the offset"),
        ("sendMessage -t x -p y -i 0", 2, "-i needs -b: the broker of the queue"),
        ("queryMsgById -t nosuch -i X", 1, "nosuch"),
        ("queryMsgByKey -t x -k y -b soon", 2, "-b soon: expected now, milliseconds or"),
        ("printMsg -t nosuch", 1, "no broker has the topic nosuch"),
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
