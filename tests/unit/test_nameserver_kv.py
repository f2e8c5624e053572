"""The key-value table and its file."""

from __future__ import annotations

import asyncio
import json

import pytest

from orbitmq.nameserver.kv import KvConfig, KvError
from orbitmq.testing.machine.simulated import simulated_runtime

PATH = "/home/namesrv/kvConfig.json"


def test_values_survive_in_rocketmqs_file() -> None:
    async def main() -> None:
        runtime = simulated_runtime()
        table = KvConfig(runtime, PATH)
        table.load()
        await table.put("ORDER_TOPIC_CONFIG", "TopicA", "broker-a:4")
        await table.put("N", "k", "ä")
        await table.delete("N", "k")
        await table.delete("N", "never there")
        assert json.loads(runtime.files.read_bytes(PATH)) == {
            "configTable": {"N": {}, "ORDER_TOPIC_CONFIG": {"TopicA": "broker-a:4"}}
        }
        again = KvConfig(runtime, PATH)
        again.load()
        assert again.get("ORDER_TOPIC_CONFIG", "TopicA") == "broker-a:4"
        assert again.namespace("N") == {}
        assert again.namespace("other") is None

    asyncio.run(main())


def test_without_a_path_it_stays_in_memory() -> None:
    async def main() -> None:
        table = KvConfig(simulated_runtime(), "")
        table.load()
        await table.put("N", "k", "v")
        assert table.get("N", "k") == "v"

    asyncio.run(main())


@pytest.mark.parametrize("text", [b"{", b"[]", b'{"configTable":{"N":5}}', b"\xff"])
def test_a_broken_file_is_named(text: bytes) -> None:
    runtime = simulated_runtime()
    runtime.files.make_dirs("/home/namesrv")
    runtime.files.write_atomic(PATH, text)
    with pytest.raises(KvError, match=PATH):
        KvConfig(runtime, PATH).load()
