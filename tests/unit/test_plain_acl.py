"""Files of ACL 1.0: their meaning, and the errors for files that cannot be used."""

from __future__ import annotations

import contextlib
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.auth.needs import topic_asked
from orbitmq.auth.plain_accounts import RIGHTS, Account
from orbitmq.auth.plain_acl import MAX_BYTES, PlainAclError, Version, read, read_all
from orbitmq.auth.rules import ALLOWED, Acl, Action, Asked, ResourceKind
from orbitmq.wire.signing import Secret

# The file that RocketMQ 4.9.7 ships.
SHIPPED = b"""
globalWhiteRemoteAddresses:
  - 10.10.103.*
  - 192.168.0.*

accounts:
  - accessKey: RocketMQ
    secretKey: 12345678
    whiteRemoteAddress:
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms:
      - topicA=DENY
      - topicB=PUB|SUB
      - topicC=SUB
    groupPerms:
      # the group should convert to retry topic
      - groupA=DENY
      - groupB=PUB|SUB
      - groupC=SUB

  - accessKey: rocketmq2
    secretKey: 12345678
    whiteRemoteAddress: 192.168.1.*
    # if it is admin, it could access all resources
    admin: true
"""
ACCOUNT = "accounts:\n- accessKey: RocketMQ\n  secretKey: pssst-pssst\n"


def account(**values: object) -> Account:
    return Account("RocketMQ", Secret("12345678"), 1, **values)  # type: ignore[arg-type]


def may(acl: Acl, action: Action, kind: ResourceKind, name: str) -> bool:
    return acl.verdict(Asked(kind, name, (action,)), None) == ALLOWED


@pytest.mark.behaviour("AU-32")
def test_the_file_that_rocketmq_brings() -> None:
    [file] = read_all({"plain_acl.yml": SHIPPED})
    assert file.white_addresses == ("10.10.103.*", "192.168.0.*")
    assert file.version is None
    first, second = file.accounts
    assert first == Account(
        "RocketMQ",
        Secret("12345678"),
        7,
        default_topic="DENY",
        default_group="SUB",
        topics=(("topicA", "DENY"), ("topicB", "PUB|SUB"), ("topicC", "SUB")),
        groups=(("groupA", "DENY"), ("groupB", "PUB|SUB"), ("groupC", "SUB")),
    )
    assert second == Account("rocketmq2", Secret("12345678"), 23, admin=True, white_address="192.168.1.*")
    assert (first.user().is_super, second.user().is_super) == (False, True)
    acl = first.acl()
    topics = {
        name: [action.value for action in Action if may(acl, action, ResourceKind.TOPIC, name)]
        for name in ("topicA", "topicB", "topicC", "topicD", "topicB2", "RMQ_SYS_TRACE_TOPIC")
    }
    assert topics == {
        "topicA": [],
        "topicB": ["Pub", "Sub", "Get"],
        "topicC": ["Sub", "Get"],
        "topicD": [],
        "topicB2": [],
        "RMQ_SYS_TRACE_TOPIC": ["Pub"],
    }
    groups = {
        name: may(acl, Action.SUB, ResourceKind.GROUP, name) for name in ("groupA", "groupB", "groupC", "g")
    }
    assert groups == {"groupA": False, "groupB": True, "groupC": True, "g": True}
    assert not may(acl, Action.GET, ResourceKind.CLUSTER, "DefaultCluster")


@pytest.mark.behaviour("AZ-27")
@given(
    default=st.sampled_from(["", *RIGHTS]),
    own=st.sampled_from(["", *RIGHTS]),
    asked=st.sampled_from(["PUB", "SUB"]),
)
def test_a_right_of_its_own_replaces_the_default_one(default: str, own: str, asked: str) -> None:
    """The result is that of PlainPermissionManager.checkPerm."""
    named = (("orders", own),) if own else ()
    wanted = asked in (own or default).split("|")
    action = Action.PUB if asked == "PUB" else Action.SUB
    acl = account(default_topic=default, topics=named).acl()
    assert may(acl, action, ResourceKind.TOPIC, "orders") is wanted
    assert may(acl, action, ResourceKind.TOPIC, "others") is (asked in default.split("|"))
    acl = account(default_group=default, groups=named).acl()
    assert may(acl, action, ResourceKind.GROUP, "orders") is wanted
    # The table file of users and rules keeps the same rights.
    again = Acl.from_plain(json.loads(json.dumps(acl.plain())))
    assert may(again, action, ResourceKind.GROUP, "orders") is wanted


@pytest.mark.behaviour("AZ-27")
def test_a_group_may_be_named_by_its_retry_topic() -> None:
    acl = account(topics=(("%RETRY%billing", "SUB"),)).acl()
    assert acl.verdict(topic_asked("%RETRY%billing", (Action.SUB,)), None) == ALLOWED
    assert may(acl, Action.SUB, ResourceKind.GROUP, "billing")
    assert not may(acl, Action.PUB, ResourceKind.GROUP, "billing")


@pytest.mark.behaviour("AZ-27")
def test_traces_may_be_refused_by_name() -> None:
    acl = account(default_topic="PUB|SUB", topics=(("RMQ_SYS_TRACE_TOPIC", "DENY"),)).acl()
    assert not may(acl, Action.PUB, ResourceKind.TOPIC, "RMQ_SYS_TRACE_TOPIC")
    acl = account(default_topic="SUB").acl()
    assert may(acl, Action.PUB, ResourceKind.TOPIC, "RMQ_SYS_TRACE_TOPIC")
    assert may(acl, Action.SUB, ResourceKind.TOPIC, "RMQ_SYS_TRACE_TOPIC")


@pytest.mark.behaviour("AU-32")
def test_the_version_and_files_without_accounts() -> None:
    version = b"dataVersion:\n- counter: 3\n  timestamp: 1700000000000\n"
    found = read_all({"a": version, "b": b"", "c": ACCOUNT.encode(), "d": b"accounts:\n"})
    assert [file.version for file in found] == [Version(3, 1700000000000), None, None, None]
    assert [len(file.accounts) for file in found] == [0, 0, 1, 0]
    assert read("a", b"\xef\xbb\xbf" + SHIPPED).accounts == read("a", SHIPPED).accounts


@pytest.mark.behaviour("AU-33")
@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("- a", "line 1: expected the file: keys and values, as globalWhiteRemoteAddresses: ..."),
        ("accounts: yes", "line 1: accounts: expected a list, each entry on a line of its own after '- '"),
        ("accounts:\n- 7", "line 2: expected an account: keys and values, as accessKey: ..."),
        ("account:\n", "line 1: unknown key 'account'; the file has globalWhiteRemoteAddresses, accounts"),
        (f"{ACCOUNT}  topicPerm: []", "line 4: unknown key 'topicPerm'; an account has accessKey, secretKey"),
        (f"{ACCOUNT}  admin: true\n  admin: false", "line 5: admin is there twice: keep one of them"),
        (f"{ACCOUNT}  admin: 1", "line 4: admin: expected true or false"),
        (f"{ACCOUNT}  ? [a]\n  : b", "line 4: unknown key ''; an account has accessKey"),
        ("accounts:\n- secretKey: pssst-pssst", "line 2: accessKey has 0 characters; expected 7 or more"),
        ("accounts:\n- accessKey: RocketMQ", "line 2: secretKey has 0 characters; expected 7 or more"),
        ("accounts:\n- accessKey: RocketMQ\n  secretKey: pssst", "line 2: secretKey has 5 characters"),
        (
            "accounts:\n- accessKey: RocketMQ\n  secretKey: 01234567",
            "line 3: secretKey: expected a text; put",
        ),
        (
            "accounts:\n- accessKey: RocketMQ\n  secretKey: 1234567.0",
            "line 3: secretKey: expected a text; put",
        ),
        ("accounts:\n- accessKey: RocketMQ\n  secretKey: [pssst]", "line 3: secretKey: expected a text; put"),
        ("accounts:\n- accessKey: 'RocketMQ '\n  secretKey: pssst-pssst", "line 2: accessKey"),
        (
            f"accounts:\n- accessKey: {'k' * 300}\n  secretKey: pssst-pssst",
            "has 300 characters, the limit is 255",
        ),
        (f"{ACCOUNT}  defaultTopicPerm: pub", "line 4: defaultTopicPerm is 'pub'; expected one of PUB, SUB"),
        (f"{ACCOUNT}  topicPerms:\n  - a=PUB\n  - b", "line 6: topicPerms: 'b'; expected a name and a right"),
        (f"{ACCOUNT}  topicPerms:\n  - a=PUB=SUB", "line 5: topicPerms: 'a=PUB=SUB'; expected a name and"),
        (f"{ACCOUNT}  groupPerms: [g=ANY]", "line 4: groupPerms: 'ANY'; expected one of PUB, SUB"),
        (f"{ACCOUNT}  groupPerms: [g=]", "line 4: groupPerms: ''; expected one of PUB, SUB"),
        (f"{ACCOUNT}  groupPerms: g=SUB", "line 4: groupPerms: expected a list"),
        (f"{ACCOUNT}  groupPerms: [{{g: SUB}}]", "line 4: groupPerms: expected a text; put it in quotes"),
        (f"{ACCOUNT}  topicPerms: ['orders*=PUB']", "expected a whole name: ACL 1.0 has no patterns"),
        (f"{ACCOUNT}  topicPerms: [{'t=PUB, ' * 600}]", "have 600 entries, the limit is 498"),
        (f"{ACCOUNT}{ACCOUNT[9:]}", "line 5: accessKey 'RocketMQ' is in F, line 2 as well: keep one of them"),
        (f"{ACCOUNT}dataVersion: [{{counter: x, timestamp: 1}}]", "line 4: counter: expected a number"),
        ("accounts:\n- accessKey: *pssst", "no YAML: found undefined alias"),
        ("accounts:\n\t- a", "line 2: no YAML: found character"),
        ("accounts: [pssst", "no YAML: "),
        ("a: pssst: pssst", "line 1: no YAML: mapping values are not allowed"),
        ("--- a\n--- b", "line 2: no YAML: but found another document"),
        ("accounts: \x01", "no YAML: it has control characters"),
        ("accounts: !!python/object/apply:os.system ['pssst']", "line 1: unknown key|expected"),
        ("[" * 5000, "no YAML"),
        (
            "",
            "F: no account: nobody could send a request; expected accounts: and below it '- accessKey: ...'",
        ),
        ("accounts: []", "no account: nobody could send a request"),
    ],
)
def test_what_cannot_be_used_is_named_with_its_line(text: str, error: str) -> None:
    with pytest.raises(PlainAclError) as caught:
        read_all({"F": text.encode()})
    assert str(caught.value).startswith("F: ")
    assert error in str(caught.value) or re.search(error, str(caught.value))
    assert "pssst" not in str(caught.value)


@pytest.mark.behaviour("AU-33")
def test_bytes_that_are_no_text_and_files_that_are_too_long() -> None:
    with pytest.raises(PlainAclError, match="F: line 2: a byte that is not UTF-8"):
        read("F", b"accounts:\n\xff")
    with pytest.raises(
        PlainAclError, match=f"F: the file has {MAX_BYTES + 1} bytes, the limit is {MAX_BYTES}"
    ):
        read("F", b"#" * (MAX_BYTES + 1))
    many = [f"- accessKey: account-{n}\n  secretKey: pssst-pssst\n" for n in range(9_999)]
    with pytest.raises(PlainAclError, match="accounts has 9999 entries, the limit is 9998"):
        read("F", f"accounts:\n{''.join(many)}".encode())
    with pytest.raises(PlainAclError, match="F, G: there are 9999 accounts, the limit is 9998"):
        read_all(
            {
                name: f"accounts:\n{''.join(some)}".encode()
                for name, some in (("F", many[:9]), ("G", many[9:]))
            }
        )


@pytest.mark.behaviour("AU-33")
def test_an_account_is_in_one_file() -> None:
    with pytest.raises(PlainAclError, match="b: line 2: accessKey 'RocketMQ' is in a, line 2 as well"):
        read_all({"a": ACCOUNT.encode(), "b": ACCOUNT.encode()})


@pytest.mark.behaviour("AU-33")
@given(st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode(errors="replace")))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with contextlib.suppress(PlainAclError):
        read("F", data)
