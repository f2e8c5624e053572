"""Settings that clients receive, receipt handles and endpoints."""

from __future__ import annotations

import pytest
from tests.conversation.grpc_rpc import resource

from orbitmq.broker.pop.acknowledging import Changed
from orbitmq.gateway import receipts, schema
from orbitmq.gateway.endpoints import check, endpoints, of_client
from orbitmq.gateway.messages import milliseconds, new
from orbitmq.gateway.schema import AddressScheme, ClientType
from orbitmq.gateway.settings import answered
from orbitmq.gateway.status import Code, RefusalError
from orbitmq.gateway.subscriptions import expression_of, subscription, tags_of, wanted_of
from orbitmq.wire.bodies.group import (
    CustomizedRetryPolicy,
    ExponentialRetryPolicy,
    GroupRetryPolicy,
    GroupRetryPolicyType,
    SubscriptionGroupConfig,
)

LIMIT = 4_194_304


def consumer() -> schema.Settings:
    return new(
        schema.Settings,
        client_type=ClientType.PUSH_CONSUMER,
        access_point=endpoints("127.0.0.1", 8081),
        subscription=new(schema.Subscription, group=resource("cg")),
        metric=new(schema.Metric, on=True),
    )


@pytest.mark.behaviour("GW-13")
def test_a_consumers_settings_are_its_groups() -> None:
    plain = answered(consumer(), SubscriptionGroupConfig("cg"), LIMIT)
    assert milliseconds(plain.subscription.long_polling_timeout) == 20_000
    assert (plain.subscription.receive_batch_size, plain.subscription.fifo) == (32, False)
    assert (plain.metric.on, plain.backoff_policy.max_attempts) == (False, 17)
    delays = [milliseconds(each) for each in plain.backoff_policy.customized_backoff.next]
    assert (delays[0], delays[-1], len(delays)) == (1000, 7_200_000, 18)
    assert plain.access_point == consumer().access_point
    assert plain.subscription.group.name == "cg"

    policy = GroupRetryPolicy(GroupRetryPolicyType.EXPONENTIAL, ExponentialRetryPolicy(1500, 9000, 3))
    group = SubscriptionGroupConfig(
        "cg", consume_message_orderly=True, retry_max_times=2, group_retry_policy=policy
    )
    ordered = answered(consumer(), group, LIMIT)
    assert (ordered.subscription.fifo, ordered.backoff_policy.max_attempts) == (True, 3)
    growing = ordered.backoff_policy.exponential_backoff
    assert (milliseconds(growing.initial), milliseconds(growing.max), growing.multiplier) == (1500, 9000, 3.0)


@pytest.mark.behaviour("GW-13")
def test_strange_policies_of_a_group_become_settings_that_clients_take() -> None:
    policy = GroupRetryPolicy(customized_retry_policy=CustomizedRetryPolicy(next=[]))
    group = SubscriptionGroupConfig("cg", retry_max_times=-1, group_retry_policy=policy)
    settings = answered(consumer(), group, LIMIT)
    assert settings.backoff_policy.max_attempts == 1
    assert len(settings.backoff_policy.customized_backoff.next) == 18
    most = answered(consumer(), SubscriptionGroupConfig("cg", retry_max_times=2**31 - 1), LIMIT)
    assert most.backoff_policy.max_attempts == 2**31 - 1


@pytest.mark.behaviour("GW-13")
def test_a_producers_settings_are_the_brokers() -> None:
    publishing = new(schema.Publishing, topics=[resource("T")], max_body_size=1 << 30)
    settings = answered(new(schema.Settings, publishing=publishing), None, LIMIT)
    assert (settings.publishing.max_body_size, settings.publishing.validate_message_type) == (LIMIT, True)
    assert [topic.name for topic in settings.publishing.topics] == ["T"]
    backoff = settings.backoff_policy
    assert backoff.max_attempts == 3
    assert milliseconds(backoff.exponential_backoff.initial) == 10
    assert milliseconds(backoff.exponential_backoff.max) == 1000
    assert backoff.exponential_backoff.multiplier == 2.0


# -- endpoints -----------------------------------------------------------------------------------------


def used(*addresses: tuple[str, int], scheme: int = AddressScheme.UNSPECIFIED) -> schema.Endpoints:
    found = [new(schema.Address, host=host, port=port) for host, port in addresses]
    return new(schema.Endpoints, scheme=scheme, addresses=found)


@pytest.mark.behaviour("GW-11")
@pytest.mark.parametrize(
    ("host", "scheme"),
    [
        ("192.168.7.4", AddressScheme.IPV4),
        ("fe80::1", AddressScheme.IPV6),
        ("mq.example.com", AddressScheme.DOMAIN_NAME),
        ("localhost", AddressScheme.DOMAIN_NAME),
    ],
)
def test_a_single_address_is_given_back(host: str, scheme: AddressScheme) -> None:
    found = of_client(used((host, 30_081)), "10.0.0.1", 10911)
    assert found == used((host, 30_081), scheme=scheme)
    # The scheme that a client names counts.
    asked = used((host, 30_081), scheme=AddressScheme.DOMAIN_NAME)
    assert of_client(asked, "10.0.0.1", 10911) == asked


@pytest.mark.behaviour("GW-11")
def test_of_several_addresses_or_none_the_brokers_own_is_given() -> None:
    own = used(("10.0.0.1", 10911), scheme=AddressScheme.IPV4)
    assert of_client(used(), "10.0.0.1", 10911) == own
    assert of_client(used(("a", 1), ("b", 2)), "10.0.0.1", 10911) == own


@pytest.mark.parametrize("address", [("", 1), ("a b", 1), ("x" * 254, 1), ("a", 0), ("a", 70_000), ("a", -1)])
def test_an_address_that_is_none_is_refused(address: tuple[str, int]) -> None:
    with pytest.raises(RefusalError) as caught:
        check(used(address))
    assert caught.value.code is Code.ILLEGAL_ACCESS_POINT


# -- receipt handles -----------------------------------------------------------------------------------

HANDLE = "100 1700000000000 60000 3 0 broker-a 2 105 4096"


@pytest.mark.behaviour("GW-25")
def test_a_handle_carries_all_that_ending_needs() -> None:
    handle = receipts.decode(HANDLE, "broker-a")
    assert handle.encode() == HANDLE
    settled = handle.settled("T", "cg")
    assert (settled.topic, settled.group, settled.queue_id, settled.offset) == ("T", "cg", 2, 105)
    again = receipts.decode(HANDLE.replace(" 3 0 ", " 3 1 "), "broker-a")
    assert again.settled("T", "cg").topic == "%RETRY%cg_T"
    changed = handle.changed(Changed(1_700_000_005_000, 30_000, 7))
    assert changed.encode() == "105 1700000005000 30000 7 0 broker-a 2 105 4096"
    in_order = receipts.decode(HANDLE.replace(" 3 0 ", " 999 0 "), "broker-a")
    changed = in_order.changed(Changed(1_700_000_000_000, 35_000, 999))
    assert changed.encode() == "100 1700000000000 35000 999 0 broker-a 2 105 4096"


@pytest.mark.behaviour("GW-27")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        HANDLE.rsplit(" ", 2)[0],
        HANDLE.rsplit(" ", 4)[0],
        HANDLE.replace("105", "one"),
        HANDLE.replace("broker-a", "broker-b"),
        HANDLE.replace(" 3 0 ", " 3 9 "),
        "1" * 2000,
        HANDLE + " " * 1000,
    ],
)
def test_a_handle_that_is_cut_or_foreign_is_refused(text: str) -> None:
    with pytest.raises(RefusalError, match="receipt_handle") as caught:
        receipts.decode(text, "broker-a")
    assert caught.value.code is Code.INVALID_RECEIPT_HANDLE


# -- subscriptions -------------------------------------------------------------------------------------


def test_what_a_consumer_wants_in_the_brokers_terms() -> None:
    entry = new(
        schema.SubscriptionEntry,
        topic=resource("T"),
        expression=new(schema.FilterExpression, type=1, expression=" a || b||"),
    )
    (found,) = (subscription(each, 7) for each in wanted_of([entry]))
    assert (found.topic, found.sub_string, found.expression_type) == ("T", "a || b||", "TAG")
    assert (found.tags_set, found.code_set, found.sub_version) == ({"a", "b"}, {97, 98}, 7)
    assert expression_of(new(schema.FilterExpression)) == ("*", "TAG")
    assert expression_of(new(schema.FilterExpression, type=2, expression="a > 1")) == ("a > 1", "SQL92")
    assert tags_of("*", "TAG") == frozenset() == tags_of("a > 1", "SQL92")
