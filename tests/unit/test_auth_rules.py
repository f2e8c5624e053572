"""Rules: how they are parsed, and which one decides."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.auth.rules import (
    MAX_ENTRIES,
    Acl,
    Action,
    Asked,
    PolicyType,
    Resource,
    ResourceKind,
    Rules,
    address_of,
    user_of,
)
from orbitmq.wire.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.errors import RemotingError


def rule(
    resource: str, actions: str, decision: str = "Allow", *sources: str, policy: str = "Custom"
) -> PolicyInfo:
    return PolicyInfo(policy, [PolicyEntryInfo(resource, actions.split(","), list(sources), decision)])


def acl(*policies: PolicyInfo) -> Acl:
    return Acl.of(AclInfo("User:app", list(policies)))


def asked(text: str, *actions: Action) -> Asked:
    kind, _, name = text.partition(":")
    return Asked(ResourceKind(kind), name, actions or (Action.PUB,))


HOST = address_of("10.1.2.3")


@pytest.mark.behaviour("AZ-02")
@pytest.mark.parametrize(
    ("rules", "verdict"),
    [
        ([], "no matched policies."),
        ([rule("Topic:orders", "Pub")], ""),
        ([rule("Topic:orders", "All")], ""),
        ([rule("Topic:orders", "Sub,Get")], "no matched policies."),
        ([rule("Group:orders", "Pub")], "no matched policies."),
        ([rule("Topic:order", "Pub")], "no matched policies."),
        ([rule("Topic:ord*", "Pub")], ""),
        ([rule("Topic:*", "pub")], ""),
        ([rule("*", "PUB")], ""),
        ([rule("Topic:orders", "Pub", "Allow", "10.0.0.0/8")], ""),
        ([rule("Topic:orders", "Pub", "Allow", "10.1.2.4", "10.1.2.3")], ""),
        ([rule("Topic:orders", "Pub", "Allow", "11.0.0.0/8", "fe80::/10")], "no matched policies."),
        # The exact rule decides, whatever the others say.
        ([rule("Topic:*", "Pub", "Deny"), rule("Topic:orders", "Pub")], ""),
        ([rule("Topic:orders", "Pub", "Deny"), rule("Topic:*", "Pub")], "the decision is deny."),
        ([rule("Topic:or*", "Pub", "Deny"), rule("Topic:ord*", "Pub")], ""),
        ([rule("*", "Pub", "Deny"), rule("Topic:*", "Pub")], ""),
        # A rule about another action does not count.
        ([rule("Topic:orders", "Sub", "Deny"), rule("Topic:*", "Pub")], ""),
        # Custom rules come before default ones, however exact these are.
        ([rule("Topic:orders", "Pub", policy="Default"), rule("*", "Pub", "Deny")], "the decision is deny."),
        ([rule("Topic:orders", "Pub", policy="Default"), rule("Topic:x", "Pub", "Deny")], ""),
    ],
)
def test_which_rule_decides(rules: list[PolicyInfo], verdict: str) -> None:
    found = acl(*rules) if rules else Rules(lambda name, changed: None).of("app")
    assert found.verdict(asked("Topic:orders"), HOST) == verdict


@pytest.mark.behaviour("AZ-01")
def test_one_of_the_actions_is_enough() -> None:
    found = acl(rule("Topic:orders", "Get"))
    assert found.verdict(asked("Topic:orders", Action.PUB, Action.SUB, Action.GET), HOST) == ""
    assert found.verdict(asked("Topic:orders", Action.PUB, Action.SUB), HOST) != ""


@pytest.mark.parametrize("host", ["", "unix", "::1"])
def test_a_rule_for_addresses_says_nothing_about_a_peer_of_another_kind(host: str) -> None:
    found = acl(rule("*", "All", "Allow", "10.0.0.0/8"))
    assert found.verdict(asked("Topic:orders"), address_of(host)) == "no matched policies."


def test_an_address_of_ipv4_within_ipv6_is_that_of_ipv4() -> None:
    found = acl(rule("*", "All", "Allow", "10.0.0.0/8"))
    assert found.verdict(asked("Topic:orders"), address_of("::ffff:10.1.2.3")) == ""


ENTRIES = st.tuples(
    st.sampled_from(
        ["*", "Topic:*", "Topic:a*", "Topic:aa*", "Topic:ab", "Topic:aab", "Group:*", "Group:ab"]
    ),
    st.sets(st.sampled_from(["Pub", "Sub", "Get", "All"]), min_size=1),
    st.sampled_from(["Allow", "Deny"]),
    st.sampled_from(["", "10.0.0.0/8", "10.1.0.0/16"]),
    st.sampled_from(["Custom", "Default"]),
)


@pytest.mark.behaviour("AZ-02")
@given(
    st.lists(ENTRIES, max_size=8),
    st.sampled_from(["Topic:ab", "Topic:aab", "Topic:b", "Group:ab", "Cluster:c"]),
    st.sets(st.sampled_from([Action.PUB, Action.SUB, Action.GET]), min_size=1),
    st.sampled_from(["10.1.2.3", "10.2.0.1", "192.168.0.1"]),
)
def test_the_verdict_is_that_of_a_direct_reading(
    entries: list[tuple[str, set[str], str, str, str]], resource: str, actions: set[Action], host: str
) -> None:
    policies = [
        rule(name, ",".join(sorted(does)), decision, *([source] if source else []), policy=policy)
        for name, does, decision, source, policy in entries
    ]
    given_acl = acl(*policies) if policies else Acl({})
    kept = {(policy, name): each for each in entries for name, *_, policy in [each]}

    def fits(each: tuple[str, set[str], str, str, str], action: Action) -> bool:
        name, does, _, source, _ = each
        rest = name.partition(":")[2]
        about = name == "*" or (resource.startswith(name[:-1]) if rest.endswith("*") else resource == name)
        acts = "All" in does or str(action) in does
        near = not source or ip_address(host) in ip_network(source)
        return about and acts and near

    def of(action: Action) -> str:
        for policy in ("Custom", "Default"):
            found = [each for each in kept.values() if each[4] == policy and fits(each, action)]
            if found:
                # A name without a star counts as longer than each prefix of it with a star.
                best = max(found, key=lambda each: (each[0] != "*", not each[0].endswith("*"), len(each[0])))
                return "the decision is deny." if best[2] == "Deny" else ""
        return "no matched policies."

    verdicts = {of(action) for action in actions}
    # One permitted action is enough; of the other two verdicts the one that names a rule is reported.
    expected = next(
        text for text in ("", "the decision is deny.", "no matched policies.") if text in verdicts
    )
    assert given_acl.verdict(asked(resource, *actions), address_of(host)) == expected


def test_deny_wins_between_equals() -> None:
    """Only a manipulated table has two entries of one resource, with two address lists."""
    allow, deny = (acl(rule("Topic:a", "Pub", decision)) for decision in ("Allow", "Deny"))
    both = Acl({PolicyType.CUSTOM: (*allow.policies[PolicyType.CUSTOM], *deny.policies[PolicyType.CUSTOM])})
    assert both.verdict(asked("Topic:a"), HOST) == "the decision is deny."


# -- reading ---------------------------------------------------------------------------------------------


@pytest.mark.behaviour("AZ-05")
@pytest.mark.parametrize(
    ("info", "text"),
    [
        (AclInfo("User:app", []), "policies is empty"),
        (AclInfo("User:app", [PolicyInfo("Custom", [])]), "entries is empty"),
        (
            AclInfo("User:app", [rule("Topic:a", "Pub", policy="Mine")]),
            "policyType is 'Mine'; expected one of",
        ),
        (AclInfo("User:app", [rule("Tpoic:a", "Pub")]), "resource is 'Tpoic'; expected one of Cluster"),
        (AclInfo("User:app", [rule("Topic:", "Pub")]), "resource is 'Topic:'; expected *"),
        (AclInfo("User:app", [rule("Topic", "Pub")]), "resource is 'Topic'; expected *"),
        (AclInfo("User:app", [rule("Topic:a*b", "Pub")]), "resource is 'Topic:a*b'; expected *"),
        (AclInfo("User:app", [rule("Topic:" + "a" * 400, "Pub")]), "resource is 'Topic:aaa"),
        (AclInfo("User:app", [rule("Topic:a", "Any")]), "actions is 'Any'; expected one of All"),
        (AclInfo("User:app", [rule("Topic:a", "Pub,Sbu")]), "actions is 'Sbu'; expected one of All"),
        (AclInfo("User:app", [rule("Topic:a", "Pub", "allways")]), "decision is 'allways'; expected one of"),
        (AclInfo("User:app", [rule("Topic:a", "Pub", "Allow", "10.0.0.*")]), "sourceIps is '10.0.0.*'"),
        (
            AclInfo("User:app", [rule("Topic:a", "Pub", "Allow", *["1.2.3.4"] * 101)]),
            "sourceIps has 101 addresses",
        ),
    ],
)
def test_what_is_no_rule_is_refused_and_named(info: AclInfo, text: str) -> None:
    with pytest.raises(RemotingError) as caught:
        Acl.of(info)
    assert caught.value.code == ResponseCode.INVALID_PARAMETER
    assert text in caught.value.remark


@pytest.mark.parametrize("subject", ["", "User:", "app", "Group:app"])
def test_a_subject_is_a_user(subject: str) -> None:
    with pytest.raises(RemotingError, match="expected User: and a name"):
        user_of(subject)
    assert user_of("user:a:b") == "a:b"


@pytest.mark.behaviour("AZ-05")
def test_rules_about_the_same_resource_are_replaced_and_removed_by_it() -> None:
    told: list[tuple[str, Acl | None]] = []
    rules = Rules(lambda name, changed: told.append((name, changed)))
    rules.add("app", acl(rule("Topic:a", "Pub"), rule("Topic:b", "Pub")))
    rules.add("app", acl(rule("Topic:a", "Sub", "Deny", "10.0.0.1")))
    found = rules.of("app")
    assert found.shown("app") == AclInfo(
        "User:app",
        [
            PolicyInfo(
                "Custom",
                [
                    PolicyEntryInfo("Topic:a", ["Sub"], ["10.0.0.1"], "Deny"),
                    PolicyEntryInfo("Topic:b", ["Pub"], None, "Allow"),
                ],
            )
        ],
    )
    assert [info.resource for info in (found.shown("app", ":b").policies or [])[0].entries or []] == [
        "Topic:b"
    ]
    assert Acl.of(AclInfo.from_json(found.plain())) == found
    left = found.without(PolicyType.CUSTOM, Resource.parse("Topic:a"))
    assert left is not None
    assert left.without(PolicyType.DEFAULT, Resource.parse("Topic:b")) == left
    assert left.without(PolicyType.CUSTOM, Resource.parse("Topic:b")) is None
    assert [name for name, _ in told] == ["app", "app"]


def test_rules_of_one_user_have_a_limit() -> None:
    rules = Rules(lambda name, changed: None)
    entries = [PolicyEntryInfo(f"Topic:t{number}", ["Pub"], None, "Allow") for number in range(MAX_ENTRIES)]
    rules.add("app", Acl.of(AclInfo(None, [PolicyInfo("Custom", entries)])))
    rules.add("app", acl(rule("Topic:t1", "Sub")))
    with pytest.raises(RemotingError, match="User:app would have 1001 entries, the limit is 1000"):
        rules.add("app", acl(rule("Topic:more", "Sub")))
