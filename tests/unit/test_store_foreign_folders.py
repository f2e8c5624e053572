"""Folders of a RocketMQ broker in a form that OrbitMQ cannot read."""

from __future__ import annotations

import pytest
from tests.conversation.broker_peer import broker_config

from orbitmq.broker.broker import Broker
from orbitmq.broker.config import BrokerConfig, ConfigError
from orbitmq.errors import StartError
from orbitmq.testing.machine.simulated import simulated_runtime

pytestmark = pytest.mark.usefixtures("orbitmq_loop")

# A file of the folder, the folder that the error names, and words of its advice.
FOREIGN = [
    ("config/topics/CURRENT", "config/topics", "rocksDBConfigToJson -p"),
    ("config/subscriptionGroups/000009.sst", "config/subscriptionGroups", "subscriptionGroup.json"),
    ("config/consumerOffsets/MANIFEST-000001", "config/consumerOffsets", "as a slave"),
    ("config/metadata/CURRENT", "config/metadata", "rocksDBConfigToJson -b"),
    ("config/rdb/CURRENT", "config/rdb", "rocksDBConfigToJson -b"),
    ("consumequeue/CURRENT", "consumequeue", "anew from the log"),
    ("consumequeue/000012.sst", "consumequeue", "anew from the log"),
    ("dledger-n0/data/00000000000000000000", "dledger-n0", "DLedger"),
    ("batchconsumequeue/orders/0/00000000000000000000", "batchconsumequeue", "SimpleCQ"),
    ("kvStore/CURRENT", "kvStore", "pop finish"),
]
# The files of a broker of RocketMQ 5.5 with default settings, and exported tables.
READ = [
    "rocksdbstore/CURRENT",
    "config/topics.old/CURRENT",
    "consumequeue_rocksdb/CURRENT",
    "kvStore.old/CURRENT",
]


@pytest.mark.behaviour("ST-18")
@pytest.mark.parametrize(("file", "folder", "way_out"), FOREIGN)
async def test_a_start_with_one_is_refused_with_the_way_out(file: str, folder: str, way_out: str) -> None:
    runtime = simulated_runtime(1)
    config = broker_config()
    root = config.store_path_root_dir
    runtime.files.write_atomic(f"{root}/{file}", b"x")
    broker = Broker(runtime, config)
    with pytest.raises(StartError) as failure:
        await broker.start()
    assert str(failure.value).startswith(f"{root}/{folder} ")
    assert way_out in str(failure.value)
    assert not runtime.files.exists(f"{root}/checkpoint")
    runtime.files.remove_tree(f"{root}/{folder}")
    async with Broker(runtime, config):
        pass


@pytest.mark.behaviour("ST-18")
async def test_all_of_them_are_named_at_once() -> None:
    runtime = simulated_runtime(1)
    config = broker_config()
    for file, _, _ in FOREIGN:
        runtime.files.write_atomic(f"{config.store_path_root_dir}/{file}", b"x")
    with pytest.raises(StartError) as failure:
        await Broker(runtime, config).start()
    for _, folder, _ in FOREIGN:
        assert f"{config.store_path_root_dir}/{folder} " in str(failure.value)


@pytest.mark.behaviour("ST-18")
async def test_a_folder_of_default_settings_is_taken() -> None:
    runtime = simulated_runtime(1)
    config = broker_config()
    for file in READ:
        runtime.files.write_atomic(f"{config.store_path_root_dir}/{file}", b"x")
    async with Broker(runtime, config):
        pass


@pytest.mark.behaviour("ST-18")
@pytest.mark.parametrize(
    "key", ["enableDLegerCommitLog", "enableControllerMode", "timerRocksDBEnable", "transRocksDBEnable"]
)
def test_a_setting_that_keeps_data_or_masters_elsewhere_is_refused(key: str) -> None:
    with pytest.raises(ConfigError, match=f"^line 1: {key}=true: expected false: "):
        BrokerConfig.load(f"{key}=true")
    assert len(BrokerConfig.load(f"{key}=false")[1]) == 1
    assert len(BrokerConfig.load(f"{key}=true", {key: "false"})[1]) == 1
