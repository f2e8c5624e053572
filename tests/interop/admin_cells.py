"""Apache's mqadmin against any place; what it prints is compared with what it prints about Apache's own."""

from __future__ import annotations

import difflib
import json
import re
import shutil
import time

from tests.interop.world import Place, World, check, equal

VIEW_BROKER_STATS_DATA = 315
GET_CONSUME_STATS = 208
GET_PRODUCER_CONNECTION_LIST = 204
_MASKS = (
    (re.compile(r"127\.0\.0\.1:\d+"), "ADDRESS"),
    (re.compile(r"@\d+#\d+"), "@PROCESS"),
    (re.compile(r"\b([0-9A-F]{32}|[0-9A-F]{56})\b"), "ID"),
    (re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d([,.]\d+)?"), "TIME"),
    (re.compile(r"\b1[78]\d{11}\b"), "MILLIS"),
    (re.compile(r"\b\d+\.\d+(?=[(,\s)]|$)"), "N.NN"),
    (re.compile(r" OK, \d+$", re.MULTILINE), " OK, TOPICS"),
    (re.compile(r"CommitLog Offset: \d+"), "CommitLog Offset"),
    (re.compile(r"commitLogOffset=\d+"), "commitLogOffset"),
    (re.compile(r"(true|false) +\d+$", re.MULTILINE), r"\1 MS"),
    (re.compile(r"V\d_\d_\d(_SNAPSHOT)?"), "VERSION"),
    (re.compile(r"[ \t]+"), " "),
)


def masked(text: str) -> list[str]:
    """Lines without addresses, ids, times and rates, in a fixed order."""
    for pattern, word in _MASKS:
        text = pattern.sub(word, text)
    return sorted(line.strip() for line in text.splitlines() if line.strip())


# Without timerReadBehind: in Apache's broker a second that is just over counts as behind. Without
# msgGetTotalTodayMorning and msgPutTotalTodayMorning: midnight within a run changes them.
STATE_VALUES = frozenset(
    {
        "brokerActive",
        "commitLogMinOffset",
        "commitLogMaxOffset",
        "dispatchBehindBytes",
        "msgPutTotalTodayNow",
        "putMessageSizeTotal",
        "putMessageTimesTotal",
        "timerCongestNum",
        "timerOffsetBehind",
    }
)
# Apache finds the second address out by itself and does not tell the file of its settings; a pull here may
# bring more messages at once, and may bring an SQL92 expression.
OTHER_SETTINGS = frozenset(
    {
        "brokerIP2",
        "brokerConfigPath",
        # Of the place.
        "haListenPort",
        "listenPort",
        "namesrvAddr",
        "transactionCheckInterval",
        "transactionTimeOut",
        # Empty unless it is set: no installation folder is needed.
        "rocketmqHome",
        "brokerNotActiveTimeoutMillis",
        "delayOffsetUpdateVersionStep",
        "enablePropertyFilter",
        "maxTransferCountOnMessageInMemory",
        "metricsPromExporterHost",
        "popPollingSize",
    }
)
_FOLDER = re.compile(r"/\S*/place-[\w-]+")
_TABLE_ROW = re.compile(r"^(\S+?) *(?:=  ?|: )(.*)$", re.MULTILINE)


def table_of(output: str) -> dict[str, str]:
    """Names and values, with the place's folder masked."""
    return {name: value.strip() for name, value in _TABLE_ROW.findall(_FOLDER.sub("FOLDER", output))}


class Conversation:
    """Runs commands at a place and compares their output with the same conversation elsewhere."""

    def __init__(self, world: World, place: Place, name: str) -> None:
        self.world = world
        self.place = place
        self.name = name
        self.outputs: dict[str, str] = {}
        self.failures: list[str] = []

    def run(self, *commands: str) -> list[str]:
        """Each command without `-n`; returns what each printed."""
        lines = [[*command.split(" "), "-n", self.place.ns] for command in commands]
        outputs = self.world.admin(lines)
        for command, output in zip(commands, outputs, strict=True):
            self.outputs[masked(command)[0]] = output
            if "Exception" in output:
                self.failures.append(f"mqadmin {command}: {brief(output)}")
        return outputs

    def compare_tables(
        self,
        command: str,
        output: str,
        *,
        missing: frozenset[str] | None,
        values: frozenset[str] | None,
        other: frozenset[str] = frozenset(),
    ) -> None:
        """Compare a command that prints names and values with what it printed at Apache's own place.

        Args:
            missing: names that may be missing here; None: any (RocketMQ has settings for what is not here).
            values: names whose values must be equal; None: all.
            other: names whose values may differ after all.
        """
        table = table_of(output)
        kept = self.world.baseline.tables
        if self.place.kind == "apache/apache":
            kept[command] = table
        theirs = kept.get(command)
        if theirs is None:
            self.world.remarks.append(f"mqadmin {command} is not compared: no baseline")
            return
        if missing is not None and (absent := sorted(theirs.keys() - table.keys() - missing)):
            self.failures.append(f"mqadmin {command} lacks {', '.join(absent)}")
        for name in sorted(
            (theirs.keys() if values is None else values) & theirs.keys() & table.keys() - other
        ):
            if theirs[name] != table[name]:
                self.failures.append(f"mqadmin {command}: {name} is {table[name]}, not {theirs[name]}")

    def compare(self) -> None:
        """Against the conversation with the same name at Apache's own place, in this run or in one before.

        Raises:
            CellError: naming every command that failed or printed something else.
        """
        baseline = self.world.baseline
        if self.place.kind == "apache/apache" and not self.failures:
            baseline.conversations[self.name] = self.outputs
            baseline.save()
        kept = baseline.of(self.name, set(self.outputs))
        if kept is None:
            self.world.remarks.append("not compared: no baseline; the cells of apache/apache make it")
        for command, theirs in (kept or {}).items():
            ours = masked(self.outputs[command])
            different = [
                line
                for line in difflib.unified_diff(masked(theirs), ours, "apache", "ours", lineterm="", n=0)
                if line[0] in "+-" and line[:3] not in ("+++", "---")
            ]
            if different:
                self.failures.append(f"mqadmin {command} differs: " + " / ".join(different[:8]))
        check(not self.failures, "; ".join(self.failures))


def brief(output: str) -> str:
    wanted = [line for line in output.splitlines() if "Exception" in line or "DESC" in line]
    return " | ".join(wanted[:3])


def basics(world: World, place: Place) -> None:
    """Clusters, topics, routes, statistics, progress and messages by id."""
    topic, group = "admin_topic", "admin_group"
    address = place.broker.address
    talk = Conversation(world, place, "basics")
    created = talk.run(f"updateTopic -b {address} -t {topic} -r 4 -w 4 -p 6")[0]
    check("success" in created, f"updateTopic: {created[:200]}")
    sent = world.facts("Send", ns=place.ns, topic=topic, how="orderly", count=6)
    world.facts("Receive", ns=place.ns, topic=topic, group=group, count=6)
    _, topics, route, status, progress, message = talk.run(
        "clusterList",
        "topicList",
        f"topicRoute -t {topic}",
        f"topicStatus -t {topic}",
        f"consumerProgress -g {group}",
        f"queryMsgById -t {topic} -i {sent[0]['offset_id']}",
    )
    check(topic in topics.split(), f"topicList: {topics[:300]}")
    check('"writeQueueNums":4' in route.replace(" ", ""), f"topicRoute: {route[:300]}")
    rows = [line.split() for line in status.splitlines() if line.startswith("broker-a")]
    equal(sorted(row[3] for row in rows), ["0", "2", "2", "2"], f"max offsets in topicStatus:\n{status}")
    rows = [line.split() for line in progress.splitlines() if line.startswith(topic)]
    equal([row[3] for row in rows], [row[4] for row in rows], f"offsets in consumerProgress:\n{progress}")
    check("key-0" in message, f"queryMsgById: {message[:300]}")
    # The list also names the topics and groups of other cells, and the cluster list shows daily counts.
    for command in ("topicList", "clusterList"):
        del talk.outputs[command]
    talk.compare()


def more(world: World, place: Place) -> None:
    """Groups, broker status, messages by offset, offsets reset, permissions, deletion."""
    topic, group = "admin_more", "admin_more_group"
    address = place.broker.address
    talk = Conversation(world, place, "more")
    talk.run(f"updateTopic -c DefaultCluster -t {topic} -r 4 -w 4", f"updateSubGroup -b {address} -g {group}")
    sent = world.facts("Send", ns=place.ns, topic=topic, how="orderly", count=6)
    world.facts("Receive", ns=place.ns, topic=topic, group=group, count=6)
    *_, state, settings, _ = talk.run(
        f"queryMsgByOffset -t {topic} -b broker-a -i {sent[0]['queue']} -o 0",
        f"sendMessage -t {topic} -p hello -b broker-a -i 0",
        f"topicClusterList -t {topic}",
        f"resetOffsetByTime -t {topic} -g {group} -s 0",
        "wipeWritePerm -b broker-a",
        "addWritePerm -b broker-a",
        f"brokerStatus -b {address}",
        f"getBrokerConfig -b {address}",
        f"deleteTopic -c DefaultCluster -t {topic}",
    )
    talk.compare_tables("brokerStatus", state, missing=frozenset(), values=STATE_VALUES)
    talk.compare_tables("getBrokerConfig", settings, missing=None, values=None, other=OTHER_SETTINGS)
    for command in (f"brokerStatus -b {address}", f"getBrokerConfig -b {address}"):
        del talk.outputs[masked(command)[0]]
    talk.compare()


def by_key(world: World, place: Place) -> None:
    """Messages by key and by unique key, through the message index."""
    topic = "admin_keys"
    talk = Conversation(world, place, "by key")
    talk.run(f"updateTopic -c DefaultCluster -t {topic} -r 4 -w 4")
    sent = world.facts("Send", ns=place.ns, topic=topic, how="orderly", count=6)
    talk.run(f"queryMsgByKey -t {topic} -k key-3", f"queryMsgByUniqueKey -t {topic} -i {sent[0]['id']}")
    talk.compare()


def wait_for_statistics(place: Place, name: str, key: str, total: int) -> None:
    """Wait until a number of the broker's has been sampled, which happens every 10 s."""
    deadline = time.monotonic() + 60
    fields = {"statsName": name, "statsKey": key}
    with place.client() as client:
        while True:
            answer = client.ask(VIEW_BROKER_STATS_DATA, fields)
            if answer.code == 0 and json.loads(answer.body)["statsMinute"]["sum"] == total:
                return
            check(time.monotonic() < deadline, f"{name} of {key} is not {total} after 60 s: {answer}")
            time.sleep(0.5)


def wait_for_producer(place: Place, group: str, topic: str) -> None:
    """Wait until the broker knows a producer: the heartbeats of Apache's come every 30 s."""
    deadline = time.monotonic() + 90
    with place.client() as client:
        while client.ask(GET_PRODUCER_CONNECTION_LIST, {"producerGroup": group, "topic": topic}).code:
            check(time.monotonic() < deadline, f"no producer of {group} is known after 90 s")
            time.sleep(0.5)


def wait_for_offsets(place: Place, topic: str, group: str) -> None:
    """Wait until the group has committed all it got, which its consumers do every 5 s."""
    deadline = time.monotonic() + 90
    with place.client() as client:
        while True:
            answer = client.ask(GET_CONSUME_STATS, {"consumerGroup": group, "topic": topic})
            # Its keys are objects, so this is not JSON; each queue's offsets stand behind one another.
            rows = re.findall(rb'"brokerOffset":(\d+),"consumerOffset":(-?\d+)', answer.body)
            if rows and all(end == committed for end, committed in rows):
                return
            check(time.monotonic() < deadline, f"{group} has not committed its offsets after 90 s: {answer}")
            time.sleep(0.5)


def clients(world: World, place: Place) -> None:
    """Who is connected: producers and consumers with their subscriptions; what the statistics say."""
    topic, group = "admin_clients", "admin_clients_group"
    talk = Conversation(world, place, "clients")
    talk.run(f"updateTopic -c DefaultCluster -t {topic} -r 4 -w 4")
    options = {"ns": place.ns, "topic": topic}
    with world.java("Receive", group=group, tags="even || odd", count=7, seconds=300, **options) as receiver:
        receiver.wait_for("ready")
        with world.java("Send", how="sync", count=6, hold=300, **options) as sender:
            sender.wait_for("held")
            receiver.wait_for("received")
            wait_for_producer(place, "interop_producer", topic)
            for name, key in (("TOPIC_PUT_NUMS", topic), ("GROUP_GET_NUMS", f"{topic}@{group}")):
                wait_for_statistics(place, name, key, 6)
            wait_for_offsets(place, topic, group)
            producers, consumers, _ = talk.run(
                f"producerConnection -g interop_producer -t {topic}",
                f"consumerConnection -g {group}",
                f"statsAll -t {topic}",
            )
    check("JAVA" in producers, f"producerConnection: {producers[:300]}")
    check("even || odd" in consumers, f"consumerConnection: {consumers[:300]}")
    talk.compare()


def messages(world: World, place: Place) -> None:
    """Messages sent, timed, read and printed by mqadmin; a setting of the broker changed."""
    topic = "admin_messages"
    address = place.broker.address
    talk = Conversation(world, place, "messages")
    talk.run(f"updateTopic -c DefaultCluster -t {topic} -r 4 -w 4")
    sent = world.facts("Send", ns=place.ns, topic=topic, how="orderly", count=6)
    queue = sent[0]["queue"]
    talk.run(
        f"checkMsgSendRT -t {topic} -a 4 -s 64",
        f"consumeMessage -t {topic} -b broker-a -i {queue} -o 0",
        f"printMsg -t {topic}",
        f"printMsgByQueue -t {topic} -a broker-a -i {queue} -p true -d true -f true",
        f"updateBrokerConfig -b {address} -k autoCreateTopicEnable -v true",
    )
    config = talk.run(f"getBrokerConfig -b {address}")[0]
    check(re.search(r"autoCreateTopicEnable\s*=\s*true", config), f"getBrokerConfig: {config[:300]}")
    del talk.outputs[masked(f"getBrokerConfig -b {address}")[0]]
    talk.compare()


def groups(world: World, place: Place) -> None:
    """Groups moved, copied, shown, and switched between pulling and popping."""
    topic, group, copy = "admin_groups", "admin_groups_group", "admin_groups_copy"
    address = place.broker.address
    talk = Conversation(world, place, "groups")
    talk.run(
        f"updateTopic -c DefaultCluster -t {topic} -r 4 -w 4",
        f"updateSubGroup -b {address} -g {group}",
        f"updateSubGroup -b {address} -g {copy}",
        # By which consumerProgress finds a group that no client has joined yet.
        f"updateTopic -c DefaultCluster -t %RETRY%{copy} -r 1 -w 1",
    )
    world.facts("Send", ns=place.ns, topic=topic, how="orderly", count=6)
    world.facts("Receive", ns=place.ns, topic=topic, group=group, count=6)
    wait_for_offsets(place, topic, group)
    world.facts("Send", ns=place.ns, topic=topic, how="orderly", count=6)
    talk.run(
        f"getConsumerConfig -g {group}",
        f"cloneGroupOffset -s {group} -d {copy} -t {topic}",
        f"consumerProgress -g {copy}",
        f"skipAccumulatedMessage -g {group} -t {topic}",
        f"consumerProgress -g {group}",
        f"consumerProgress -g {copy} -t {topic}",
        f"setConsumeMode -b {address} -t {topic} -g {group} -m POP -q 0",
        f"setConsumeMode -b {address} -t {topic} -g {group} -m PULL",
    )
    options = {"ns": place.ns, "topic": topic}
    with world.java("Receive", group=copy, count=100, seconds=300, **options) as receiver:
        receiver.wait_for("received")
        shown = talk.run(f"consumerStatus -g {copy}")[0]
    for folder in set(re.findall(r"\b(\d{13})/", shown)):
        shutil.rmtree(folder, ignore_errors=True)  # it writes what it knows into the present folder
    check("Same subscription" in shown and "Rebalance OK" in shown, f"consumerStatus: {shown[:300]}")
    del talk.outputs[f"consumerStatus -g {copy}"]  # it names the client's process
    talk.compare()
