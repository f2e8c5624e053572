"""The name server answers all input, and only with a response code and a remark."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.nameserver.config import NameServerConfig
from orbitmq.nameserver.handlers import Handlers
from orbitmq.nameserver.kv import KvConfig
from orbitmq.nameserver.routes import RouteTable
from orbitmq.testing.machine.simulated import simulated_runtime
from orbitmq.wire.command import Command
from orbitmq.wire.errors import RemotingError

CODES = (
    *(100, 101, 102, 103, 104, 105, 106, 205, 206, 216, 217, 219, 224, 304),
    *(311, 312, 313, 318, 319, 322, 327, 901, 904),
)
FIELDS = (
    *("namespace", "key", "value", "brokerName", "brokerAddr", "clusterName", "haServerAddr", "brokerId"),
    *("heartbeatTimeoutMillis", "enableActingMaster", "compressed", "bodyCrc32", "topic", "cluster"),
)
texts = st.one_of(st.sampled_from(["", "0", "-1", "true", "x", "9" * 30]), st.text(max_size=8))
json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=4)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(
                ["topicConfigSerializeWrapper", "topicConfigTable", "dataVersion", "queueDatas", "perm", "T"]
            ),
            inner,
            max_size=3,
        ),
    ),
    max_leaves=8,
)
bodies = st.one_of(
    st.binary(max_size=64),
    st.builds(lambda tail: b"\x78\xda" + tail, st.binary(max_size=64)),
    st.builds(lambda value: json.dumps(value).encode(), json_values),
)
commands = st.builds(
    Command,
    st.sampled_from(CODES),
    ext=st.dictionaries(st.sampled_from(FIELDS), texts),
    body=bodies,
    version=st.sampled_from([0, 36, 300, 401, 479]),
)


@pytest.mark.parametrize("code", CODES)
def test_a_request_without_fields_is_answered(code: int) -> None:
    asyncio.run(_ask([Command(code)]))


@settings(max_examples=300, deadline=None)
@given(st.lists(commands, min_size=1, max_size=5))
def test_any_fields_and_any_body_are_answered(history: list[Command]) -> None:
    asyncio.run(_ask(history))


async def _ask(history: list[Command]) -> None:
    runtime = simulated_runtime()
    handlers = Handlers(runtime, NameServerConfig(), RouteTable(), KvConfig(runtime, ""))
    for command in history:
        refusal = None
        try:
            answer = handlers.handle("peer", command)
            answer = answer if isinstance(answer, Command) else await answer
        except RemotingError as error:
            refusal = error
        assert refusal is None or (refusal.code != 0 and refusal.remark)
