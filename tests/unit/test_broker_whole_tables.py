"""Responses with whole tables, of any length."""

from __future__ import annotations

import asyncio

import pytest

from orbitmq.broker.handlers.tables import SLICE, encode_with_table
from orbitmq.testing import SimulatedRuntime
from orbitmq.wire.bodies.group import SubscriptionGroupConfig, SubscriptionGroupWrapper
from orbitmq.wire.bodies.topic import DataVersion, TopicConfig, TopicConfigAndMappingSerializeWrapper


@pytest.mark.parametrize("count", [0, 1, SLICE, SLICE + 1])
async def test_the_body_is_as_if_encoded_at_once(runtime: SimulatedRuntime, count: int) -> None:
    table = {f"g{number}": SubscriptionGroupConfig(f"g{number}") for number in range(count)}
    version = DataVersion(counter=7)
    body = SubscriptionGroupWrapper(data_version=version, forbidden_table={"g": {"t": 1}})
    whole = SubscriptionGroupWrapper(
        data_version=version, subscription_group_table=table, forbidden_table={"g": {"t": 1}}
    )
    assert await encode_with_table(body, "subscriptionGroupTable", table) == whole.encode()


async def test_others_go_on_meanwhile_and_the_version_is_that_from_before(runtime: SimulatedRuntime) -> None:
    version = DataVersion(counter=1)
    table = {f"t{number}": TopicConfig(f"t{number}") for number in range(2 * SLICE)}
    body = TopicConfigAndMappingSerializeWrapper(data_version=version)
    encoding = asyncio.ensure_future(encode_with_table(body, "topicConfigTable", table))
    await asyncio.sleep(0)
    assert not encoding.done()
    version.counter = 2
    found = TopicConfigAndMappingSerializeWrapper.decode(await encoding)
    assert found.topic_config_table == table
    assert found.data_version.counter == 1


async def test_a_body_without_that_table_is_a_mistake(runtime: SimulatedRuntime) -> None:
    with pytest.raises(ValueError, match="no empty topics"):
        await encode_with_table(SubscriptionGroupWrapper(), "topics", {})
