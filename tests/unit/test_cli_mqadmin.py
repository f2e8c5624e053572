"""``orbitmq mqadmin``: its names, and values as Java prints them."""

from __future__ import annotations

import pytest

from orbitmq.cli.main import COMMANDS, main
from orbitmq.cli.mqadmin.main import ELSEWHERE, OFFERED
from orbitmq.cli.mqadmin.offers import moment
from orbitmq.cli.mqadmin.text import clock, group_config, json_of, perm, topic_config
from orbitmq.wire.bodies.group import (
    ExponentialRetryPolicy,
    GroupRetryPolicy,
    GroupRetryPolicyType,
    SubscriptionGroupConfig,
)
from orbitmq.wire.bodies.topic import TopicConfig

# All commands of mqadmin 5.5.0.
NAMES = [
    "addBroker",
    "addWritePerm",
    "allocateMQ",
    "brokerConsumeStats",
    "brokerStatus",
    "checkMsgSendRT",
    "checkRocksdbCqWriteProgress",
    "cleanBrokerMetadata",
    "cleanExpiredCQ",
    "cleanUnusedTopic",
    "cloneGroupOffset",
    "clusterList",
    "clusterRT",
    "consumeMessage",
    "consumerConnection",
    "consumerProgress",
    "consumerStatus",
    "copyAcl",
    "copyUser",
    "createAcl",
    "createUser",
    "deleteAcl",
    "deleteExpiredCommitLog",
    "deleteKvConfig",
    "deleteSubGroup",
    "deleteTopic",
    "deleteUser",
    "dumpCompactionLog",
    "electMaster",
    "exportConfigs",
    "exportMetadata",
    "exportMetadataInRocksDB",
    "exportMetrics",
    "exportPopRecord",
    "getAcl",
    "getBrokerConfig",
    "getBrokerEpoch",
    "getColdDataFlowCtrInfo",
    "getConsumerConfig",
    "getControllerConfig",
    "getControllerMetaData",
    "getNamesrvConfig",
    "getSyncStateSet",
    "getUser",
    "haStatus",
    "listAcl",
    "listUser",
    "printMsg",
    "printMsgByQueue",
    "producer",
    "producerConnection",
    "queryCq",
    "queryMsgById",
    "queryMsgByKey",
    "queryMsgByOffset",
    "queryMsgByUniqueKey",
    "queryMsgTraceById",
    "remappingStaticTopic",
    "removeBroker",
    "removeColdDataFlowCtrGroupConfig",
    "resetMasterFlushOffset",
    "resetOffsetByTime",
    "rocksDBConfigToJson",
    "sendMessage",
    "sendMsgStatus",
    "setCommitLogReadAheadMode",
    "setConsumeMode",
    "skipAccumulatedMessage",
    "startMonitoring",
    "statsAll",
    "topicClusterList",
    "topicList",
    "topicRoute",
    "topicStatus",
    "updateAcl",
    "updateBrokerConfig",
    "updateColdDataFlowCtrGroupConfig",
    "updateControllerConfig",
    "updateKvConfig",
    "updateNamesrvConfig",
    "updateOrderConf",
    "updateStaticTopic",
    "updateSubGroup",
    "updateSubGroupList",
    "updateTopic",
    "updateTopicList",
    "updateTopicPerm",
    "updateUser",
    "wipeWritePerm",
]


@pytest.mark.behaviour("CS-33")
def test_every_name_is_there_or_says_what_does_it() -> None:
    assert set(NAMES) <= OFFERED.keys() | ELSEWHERE.keys()
    assert not OFFERED.keys() & ELSEWHERE.keys()


@pytest.mark.behaviour("CS-33")
@pytest.mark.parametrize("instead", sorted(filter(None, set(ELSEWHERE.values()))))
def test_the_command_that_does_it_is_there(instead: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert instead.split()[0] in COMMANDS
    assert main([*instead.split(), "--help"]) == 0
    assert f"Usage: orbitmq {instead.partition(' --')[0]}" in capsys.readouterr().out


@pytest.mark.behaviour("CS-32")
@pytest.mark.parametrize("name", OFFERED)
def test_each_command_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mqadmin", name, "--help"]) == 0
    assert f"orbitmq mqadmin {name}" in capsys.readouterr().out
    assert main(["mqadmin", "--help"]) == 0
    listed = capsys.readouterr().out
    assert OFFERED[name].text in listed
    assert (f"  {name} " in listed) is not OFFERED[name].is_alias


@pytest.mark.behaviour("CS-32")
def test_values_are_written_as_java_writes_them() -> None:
    assert [perm(number) for number in (7, 6, 4, 2, 0)] == ["RWX", "RW-", "R--", "-W-", "---"]
    assert topic_config(TopicConfig("t", 4, 8, 6, order=True, attributes={"+a": "b"})) == (
        "TopicConfig [topicName=t, readQueueNums=4, writeQueueNums=8, perm=RW-, topicFilterType=SINGLE_TAG, "
        "topicSysFlag=0, order=true, attributes={+a=b}]"
    )
    policy = GroupRetryPolicy(GroupRetryPolicyType.EXPONENTIAL, ExponentialRetryPolicy(1, 2, 3))
    text = group_config(SubscriptionGroupConfig("g", group_retry_policy=policy))
    assert (
        "{type=EXPONENTIAL, exponentialRetryPolicy=ExponentialRetryPolicy{initial=1, max=2, multiplier=3}, "
        in text
    )
    assert clock(0) == ""
    assert clock(moment("s", "2026-11-22#15:43:36:778")) == "2026-11-22 15:43:36,778"
    assert clock(1_795_362_274_206).endswith(",206")


@pytest.mark.behaviour("CS-32")
def test_json_is_laid_out_as_fastjson_lays_it_out() -> None:
    value = {"b": [{"x": {0: "a:1", 1: "b:2"}}], "a": {}, "c": True, "d": []}
    assert json_of(value) == (
        '{\n\t"a":{},\n\t"b":[\n\t\t{\n\t\t\t"x":{\n\t\t\t\t0:"a:1",\n\t\t\t\t1:"b:2"\n\t\t\t}\n\t\t}\n\t],\n'
        '\t"c":true,\n\t"d":[]\n}'
    )
