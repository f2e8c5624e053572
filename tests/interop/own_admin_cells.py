"""``orbitmq mqadmin`` at Apache's broker prints what Apache's mqadmin prints there."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stderr, redirect_stdout

from tests.interop.admin_cells import Conversation, masked, table_of, wait_for_offsets
from tests.interop.world import Place, World, check, equal

from orbitmq.cli.main import main

TOPIC, GROUP = "own_topic", "own_group"


def printed(place: Place, line: str, command: str = "mqadmin") -> str:
    """What our command prints."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main([command, *line.split(" "), "-n", place.ns])
    check(code == 0, f"orbitmq {command} {line}: {err.getvalue()}")
    return out.getvalue()


def basics(world: World, place: Place) -> None:
    """A topic made, used, shown and deleted; what Apache's printed is that of the cells of mqadmin."""
    address = place.broker.address
    talk = Conversation(world, place, "basics")
    kept = talk.world.baseline.conversations["basics"]

    def same(line: str) -> None:
        theirs = kept[masked(line)[0]].replace("admin_topic", TOPIC).replace("admin_group", GROUP)
        own = line.replace("admin_topic", TOPIC).replace("admin_group", GROUP)
        equal(masked(printed(place, own)), masked(theirs), f"orbitmq mqadmin {own}")

    same(f"updateTopic -b {address} -t admin_topic -r 4 -w 4 -p 6")
    sent = world.facts("Send", ns=place.ns, topic=TOPIC, how="orderly", count=6)
    world.facts("Receive", ns=place.ns, topic=TOPIC, group=GROUP, count=6)
    wait_for_offsets(place, TOPIC, GROUP)
    for line in (
        "topicRoute -t admin_topic",
        "topicStatus -t admin_topic",
        "consumerProgress -g admin_group",
    ):
        same(line)
    shown = printed(place, f"queryMsgById -t {TOPIC} -i {sent[0]['offset_id']}")
    check("Keys:                [key-0]" in shown and "NOT_ONLINE" in shown, f"queryMsgById: {shown}")
    check(TOPIC in printed(place, "topicList").split(), "topicList lacks the topic")
    row = printed(place, "clusterList").splitlines()[1].split()
    equal(row[:4], ["DefaultCluster", "broker-a", "0", address], "clusterList")
    for command in ("brokerStatus", "getBrokerConfig"):
        theirs = world.baseline.tables[command]
        missing = theirs.keys() - table_of(printed(place, f"{command} -b {address}")).keys()
        equal(missing, set(), f"names that {command} lacks")
    rows = json.loads(printed(place, "--once --json --interval 0.5", "top"))["rows"]
    own = [(row["topic"], row["lag"]) for row in rows if row["group"] == GROUP]
    equal(own, [(TOPIC, 0)], "orbitmq top")
    moved = printed(place, f"resetOffsetByTime -t {TOPIC} -g {GROUP} -s 0").splitlines()
    equal(
        sorted(line.split()[1:] for line in moved[2:]), [[str(queue), "0"] for queue in range(4)], "a reset"
    )
    printed(place, f"updateSubGroup -b {address} -g {GROUP}")
    check("success" in printed(place, f"deleteSubGroup -b {address} -g {GROUP} -r true"), "deleteSubGroup")
    equal(len(printed(place, f"deleteTopic -c DefaultCluster -t {TOPIC}").splitlines()), 2, "deleteTopic")


CELLS = {"our mqadmin": basics}
