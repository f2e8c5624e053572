"""The gate: signatures, users, and the rights that each request needs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.auth.gate import AuthGate
from orbitmq.auth.needs import asked_of
from orbitmq.auth.refusals import MAX_KINDS, Refusal, Refusals
from orbitmq.auth.requests import REQUESTS, BrokerFacts
from orbitmq.auth.rules import Acl, Asked, Rules
from orbitmq.auth.users import MAX_USERS, User, Users, UserStatus, UserType
from orbitmq.message.model import MessageQueue
from orbitmq.wire import all_bodies as bodies
from orbitmq.wire.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from orbitmq.wire.bodies.base import Body
from orbitmq.wire.codes import RequestCode as Code
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.errors import BodyError, HeaderError, RemotingError, WireError
from orbitmq.wire.signing import Credentials, Secret, Signer

ROOT = Credentials("root", "root-secret")
APP = Credentials("app", "app-secret")
PLACE = BrokerFacts("DefaultCluster", {7: "orders", 8: "%RETRY%billing"}.get)
SUPER = User("root", Secret("root-secret"), UserType.SUPER)


def signed(command: Command, credentials: Credentials = APP) -> Command:
    Signer(credentials).sign(command, credentials)
    return command


def users() -> Users:
    found = Users(lambda name, user: None)
    found.load([SUPER, User("app", Secret("app-secret"))])
    return found


def gate(*rules: tuple[str, str], authorizes: bool = True, table: Users | None = None) -> AuthGate:
    acls = Rules(lambda name, acl: None)
    if rules:
        entries = [PolicyEntryInfo(name, actions.split(","), None, "Allow") for name, actions in rules]
        acls.put("app", Acl.of(AclInfo(None, [PolicyInfo(None, entries)])))
    return AuthGate(asked_of(REQUESTS, PLACE), table or users(), acls, authorizes=authorizes)


def refusal(found: AuthGate, command: Command) -> str:
    """The remark of the refusal; empty when the request passes."""
    try:
        found.check(command, "10.0.0.9")
    except RemotingError as error:
        return error.remark if error.code == ResponseCode.NO_PERMISSION else f"code {error.code}"
    return ""


# -- users -----------------------------------------------------------------------------------------------


def send(**more: str) -> Command:
    return Command(Code.SEND_MESSAGE_V2, {"b": "orders", "a": "g", **more}, b"body")


def changed(command: Command, **fields: str) -> Command:
    command.ext = {**command.ext, **fields}
    return command


@pytest.mark.behaviour("AU-13")
@pytest.mark.parametrize(
    ("command", "remark"),
    [
        (signed(send()), ""),
        (send(), "username cannot be null."),
        (send(AccessKey=""), "username cannot be null."),
        (send(Signature="x"), "username cannot be null."),
        (send(AccessKey="app"), "check signature failed."),
        (send(AccessKey="app", Signature=""), "check signature failed."),
        (send(AccessKey="app", Signature="\ud800"), "check signature failed."),
        (send(AccessKey="app", Signature="x" * 100_000), "check signature failed."),
        (send(AccessKey="a" * 100_000, Signature="x"), "check signature failed."),
        (signed(send(i="half \u20ac")), ""),
        (changed(signed(send()), b="invoices"), "check signature failed."),
        (changed(signed(send()), more="1"), "check signature failed."),
        (changed(signed(send()), more="\ud800"), "check signature failed."),
        (changed(signed(send()), AccessKey="root"), "check signature failed."),
        (signed(send(), Credentials("app", "another")), "check signature failed."),
        (signed(send(), Credentials("nobody", "app-secret")), "check signature failed."),
        (signed(send(), Credentials("nobody", "nobody has this key")), "check signature failed."),
    ],
)
def test_only_the_signature_of_a_user_passes(command: Command, remark: str) -> None:
    assert refusal(gate(("Topic:orders", "Pub")), command) == remark


@pytest.mark.behaviour("AU-13")
def test_the_body_is_signed_too() -> None:
    command = signed(send())
    command.body = b"another"
    assert refusal(gate(("*", "All")), command) == "check signature failed."


@pytest.mark.behaviour("AU-14")
def test_what_releases_of_rocketmq_do_not_sign_may_be_missing_in_the_signature() -> None:
    zone = {"__ZONE_NAME": "z", "__ZONE_MODE": "true"}
    found = gate(("*", "All"))
    assert refusal(found, changed(signed(send()), **zone)) == ""
    assert refusal(found, signed(send(**zone))) == ""
    assert refusal(found, changed(signed(send()), _UNIQUE_KEY_QUERY="true")) == ""
    assert refusal(found, changed(signed(send(**zone)), _UNIQUE_KEY_QUERY="true")) == ""
    assert refusal(found, changed(signed(send()), _UNIQUE_KEY_QUERY="true", **zone)) == ""
    assert refusal(found, changed(signed(send()), __ZONE="z")) == "check signature failed."


@pytest.mark.behaviour("AU-15")
def test_who_is_disabled_is_told_so_only_with_the_right_signature() -> None:
    table = users()
    table.update("app", UserInfo(user_status="disable"), SUPER)
    found = gate(("*", "All"), table=table)
    assert refusal(found, signed(send())) == "User:app is disabled."
    assert refusal(found, signed(send(), Credentials("app", "wrong"))) == "check signature failed."


def certified(command: Command, user: str = "app") -> Command:
    """The request as it comes from a client whose certificate names this user."""
    command.certified = user
    return command


OTHERS = "User:app has signed this request, and the client's certificate is root's."


@pytest.mark.behaviour("AU-47", "AU-48")
@pytest.mark.parametrize(
    ("command", "remark"),
    [
        (certified(send()), ""),
        (certified(send(), "root"), ""),
        (certified(send(), "nobody"), "User:nobody of the client's certificate is unknown."),
        (certified(send(), "n" * 300), f"User:{'n' * 255} of the client's certificate is unknown."),
        (certified(send(), "off"), "User:off is disabled."),
        (certified(signed(send())), ""),
        (certified(signed(send(), Credentials("app", "wrong"))), "check signature failed."),
        (certified(send(AccessKey="app")), "check signature failed."),
        (certified(send(AccessKey="")), "username cannot be null."),
        (certified(send(Signature="x")), "username cannot be null."),
        (certified(signed(send()), "root"), OTHERS),
        (certified(signed(send()), "off"), OTHERS.replace("root", "off")),
        (certified(signed(send(), Credentials("app", "wrong")), "root"), "check signature failed."),
        (certified(signed(send()), "mq-1"), ""),
        (certified(signed(send(), Credentials("nobody", "x")), "mq-1"), "check signature failed."),
    ],
)
def test_the_certificate_counts_without_keys_and_never_against_them(command: Command, remark: str) -> None:
    table = users()
    table.put(User("off", Secret("off-secret"), status=UserStatus.DISABLE))
    assert refusal(gate(("Topic:orders", "Pub"), table=table), command) == remark


@pytest.mark.behaviour("AU-47")
def test_the_user_of_a_certificate_has_the_rights_of_that_user() -> None:
    found = gate(("Topic:orders", "Pub"))
    assert "has no permission to access Topic:invoices" in refusal(found, certified(send(b="invoices")))
    assert "is no super user" in refusal(found, certified(Command(Code.UPDATE_BROKER_CONFIG)))
    assert refusal(found, certified(Command(Code.UPDATE_BROKER_CONFIG), "root")) == ""
    assert found.knows(certified(send()))
    assert not found.knows(certified(send(), "nobody"))
    assert not found.knows(certified(send(AccessKey="nobody")))


@pytest.mark.behaviour("AU-49")
def test_the_refusal_says_why_a_certificate_names_nobody() -> None:
    with pytest.raises(RemotingError) as caught:
        gate().check(send(), "10.0.0.9", unnamed="it has no common name (CN)")
    assert caught.value.remark == (
        "username cannot be null. The client's certificate names no user: it has no common name (CN)."
    )


# -- rights ----------------------------------------------------------------------------------------------


def body(code: Code, content: Body) -> Command:
    return Command(code, {}, content.encode())


HEART_BEAT = bodies.HeartbeatData(
    client_id="c",
    producer_data_set=[bodies.ProducerData("p")],
    consumer_data_set=[
        bodies.ConsumerData(
            "billing",
            subscription_data_set=[
                bodies.SubscriptionData("orders"),
                bodies.SubscriptionData("%RETRY%billing"),
            ],
        )
    ],
)
LOCKS = bodies.LockBatchRequestBody("billing", "c", mq_set={MessageQueue("orders", "a", 0)})
ACKS = bodies.BatchAckMessageRequestBody(
    "a", [bodies.BatchAck("billing", "orders"), bodies.BatchAck("x", "y")]
)
CONSUMES = {"consumerGroup": "billing", "topic": "orders"}
NEEDED: list[tuple[Command, list[str]]] = [
    (Command(Code.SEND_MESSAGE, {"topic": "orders"}), ["Topic:orders Pub"]),
    (Command(Code.SEND_MESSAGE_V2, {"b": "%RETRY%billing", "a": "mine"}), ["Group:billing Sub"]),
    (Command(Code.SEND_BATCH_MESSAGE, {"b": "orders"}), ["Topic:orders Pub"]),
    (Command(Code.PULL_MESSAGE, CONSUMES), ["Group:billing Sub", "Topic:orders Sub"]),
    (
        Command(Code.PULL_MESSAGE, {"consumerGroup": "mine", "topic": "%RETRY%billing"}),
        ["Group:mine Sub", "Group:billing Sub"],
    ),
    (Command(Code.LITE_PULL_MESSAGE, CONSUMES), ["Group:billing Sub", "Topic:orders Sub"]),
    (Command(Code.POP_MESSAGE, CONSUMES), ["Group:billing Sub", "Topic:orders Sub"]),
    (
        Command(Code.UPDATE_CONSUMER_OFFSET, CONSUMES),
        ["Group:billing Sub|Update", "Topic:orders Sub|Update"],
    ),
    (
        Command(Code.CONSUMER_SEND_MSG_BACK, {"group": "billing", "offset": "7"}),
        ["Group:billing Sub", "Topic:orders Sub"],
    ),
    (
        Command(Code.CONSUMER_SEND_MSG_BACK, {"group": "mine", "offset": "8"}),
        ["Group:mine Sub", "Group:billing Sub"],
    ),
    (Command(Code.CONSUMER_SEND_MSG_BACK, {"group": "mine", "offset": "9"}), ["Group:mine Sub"]),
    (Command(Code.VIEW_MESSAGE_BY_ID, {"topic": "mine", "offset": "7"}), ["Topic:orders Get"]),
    (Command(Code.END_TRANSACTION, {"topic": "mine", "commitLogOffset": "7"}), ["Topic:orders Pub"]),
    (body(Code.HEART_BEAT, HEART_BEAT), ["Group:billing Sub", "Topic:orders Sub", "Group:billing Sub"]),
    (body(Code.LOCK_BATCH_MQ, LOCKS), ["Group:billing Sub", "Topic:orders Sub"]),
    (body(Code.UNLOCK_BATCH_MQ, LOCKS), ["Group:billing Sub", "Topic:orders Sub"]),
    (
        body(Code.BATCH_ACK_MESSAGE, ACKS),
        ["Group:billing Sub", "Group:x Sub", "Topic:orders Sub", "Topic:y Sub"],
    ),
    (
        body(Code.QUERY_ASSIGNMENT, bodies.QueryAssignmentRequestBody("orders", "billing", "c")),
        ["Group:billing Sub", "Topic:orders Sub"],
    ),
    (
        body(Code.SET_MESSAGE_REQUEST_MODE, bodies.SetMessageRequestModeRequestBody("orders", "billing")),
        ["Group:billing Update", "Topic:orders Update"],
    ),
    (
        body(
            Code.CHECK_CLIENT_CONFIG,
            bodies.CheckClientRequestBody("c", "billing", bodies.SubscriptionData("orders")),
        ),
        ["Group:billing Sub", "Topic:orders Sub"],
    ),
    (Command(Code.UNREGISTER_CLIENT, {"clientID": "c", "producerGroup": "p"}), []),
    (Command(Code.UNREGISTER_CLIENT, {"clientID": "c", "consumerGroup": "billing"}), ["Group:billing Sub"]),
    (
        Command(Code.GET_CONSUME_STATS, {"consumerGroup": "billing", "topicList": "a;%RETRY%b"}),
        ["Group:billing Get", "Topic:a Get", "Group:b Get"],
    ),
    (
        Command(Code.QUERY_CORRECTION_OFFSET, {"compareGroup": "c", "topic": "t", "filterGroups": "a,b"}),
        ["Group:a Get", "Group:b Get", "Group:c Get", "Topic:t Get"],
    ),
    (
        Command(Code.CLONE_GROUP_OFFSET, {"srcGroup": "a", "destGroup": "b"}),
        ["Group:a Get", "Group:b Update"],
    ),
    (body(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, bodies.SubscriptionGroupConfig("g")), ["Group:g Create"]),
    (
        body(
            Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
            bodies.SubscriptionGroupList(
                [bodies.SubscriptionGroupConfig("g"), bodies.SubscriptionGroupConfig("h")]
            ),
        ),
        ["Group:g Create", "Group:h Create"],
    ),
    (
        body(Code.UPDATE_AND_CREATE_TOPIC_LIST, bodies.CreateTopicListRequestBody([bodies.TopicConfig("t")])),
        ["Topic:t Create"],
    ),
    (Command(Code.DELETE_TOPIC_IN_BROKER, {"topic": "t"}), ["Topic:t Delete"]),
    (Command(Code.DELETE_SUBSCRIPTIONGROUP, {"groupName": "g"}), ["Group:g Delete"]),
    (Command(Code.GET_ALL_TOPIC_CONFIG), ["Cluster:DefaultCluster Get"]),
    (Command(Code.AUTH_CREATE_USER), ["Cluster:DefaultCluster Update"]),
    (Command(Code.AUTH_LIST_ACL), ["Cluster:DefaultCluster Get"]),
    (Command(Code.BIND_WRITER, {"writer": "w"}), []),
]


def shown(asked: Asked) -> str:
    return f"{asked} {'|'.join(asked.actions)}"


@pytest.mark.behaviour("AZ-01", "AZ-04")
@pytest.mark.parametrize(("command", "needed"), NEEDED, ids=lambda each: getattr(each, "code", ""))
def test_what_each_request_needs(command: Command, needed: list[str]) -> None:
    assert [shown(asked) for asked in REQUESTS[command.code](command, PLACE)] == needed
    # With exactly these rights the request passes, and without any one of them it does not.
    unique = list(dict.fromkeys(needed))
    rights = [(name, actions.split("|")[-1]) for name, actions in (each.split() for each in unique)]
    assert refusal(gate(*rights), signed(Command(command.code, command.ext, command.body))) == ""
    for missing in range(len(rights)):
        found = gate(*rights[:missing], *rights[missing + 1 :])
        remark = refusal(found, signed(Command(command.code, command.ext, command.body)))
        assert remark == (
            f"User:app has no permission to access {rights[missing][0]} from 10.0.0.9, no matched policies."
        )


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (
            Command(Code.SEND_MESSAGE_V2, {"topic": "orders"}),
            "request 310: field 'b' is missing; expected a topic",
        ),
        (
            Command(Code.PULL_MESSAGE, {"topic": "orders"}),
            "field 'consumerGroup' is missing; expected a group",
        ),
        (Command(Code.VIEW_MESSAGE_BY_ID, {"topic": "orders"}), "field 'offset' is ''; expected an offset"),
        (Command(Code.VIEW_MESSAGE_BY_ID, {"offset": "-7"}), "field 'offset' is '-7'; expected an offset"),
        (Command(Code.END_TRANSACTION, {"commitLogOffset": "9" * 50}), "expected an offset"),
    ],
)
def test_a_request_that_names_nothing_is_refused(command: Command, text: str) -> None:
    with pytest.raises(HeaderError, match=text):
        gate(("*", "All")).check(signed(command), "10.0.0.9")


FIELDS = st.dictionaries(
    st.sampled_from(["topic", "b", "group", "consumerGroup", "offset", "commitLogOffset", "groupName", "x"]),
    st.one_of(
        st.sampled_from(["orders", "%RETRY%", "7", "-1", "*"]),
        st.text(st.characters(exclude_categories=["Cs"])),
    ),
)
BODIES = st.one_of(
    st.binary(max_size=40), st.sampled_from([b"{}", b"[]", b"null", b'{"acks":[{}]}', b'{"mqSet":[{}]}'])
)


@pytest.mark.behaviour("AU-13", "AZ-01")
@given(st.sampled_from(sorted(REQUESTS)), FIELDS, BODIES)
def test_any_signed_request_passes_or_is_refused(code: int, fields: dict[str, str], content: bytes) -> None:
    """Each refusal has a text, and no request that names an object passes without rights."""
    command = signed(Command(code, fields, content))
    for rules in ([("*", "All")], []):
        try:
            needed = list(REQUESTS[code](command, PLACE))
            passes = bool(rules) or not needed
        except WireError:
            passes = False
        found = gate(*rules)
        if passes:
            found.check(command, "10.0.0.9")
        else:
            with pytest.raises((RemotingError, WireError), match=r"\S"):
                found.check(command, "10.0.0.9")


def test_a_body_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(BodyError):
        gate(("*", "All")).check(signed(Command(Code.HEART_BEAT, {}, b"[")), "10.0.0.9")


def test_a_request_names_no_more_than_can_be_judged_at_once() -> None:
    names = [bodies.SubscriptionData(f"t{number}") for number in range(2_000)]
    beat = bodies.HeartbeatData(
        "c", consumer_data_set=[bodies.ConsumerData("g", subscription_data_set=names)]
    )
    with pytest.raises(RemotingError, match="names more than 2000 topics and groups"):
        gate(("*", "All")).check(signed(body(Code.HEART_BEAT, beat)), "10.0.0.9")
    del names[-1]
    assert refusal(gate(("*", "All")), signed(body(Code.HEART_BEAT, beat))) == ""


@pytest.mark.behaviour("AZ-03")
@pytest.mark.parametrize(
    "code", [Code.UPDATE_BROKER_CONFIG, Code.GET_BROKER_CONFIG, Code.START_REDRIVE, 4711]
)
def test_a_code_without_a_row_is_for_super_users(code: int) -> None:
    found = gate(("*", "All"))
    assert code not in REQUESTS
    assert (
        refusal(found, signed(Command(code))) == f"User:app is no super user: request {int(code)} is theirs."
    )
    assert refusal(found, signed(Command(code), ROOT)) == ""


@pytest.mark.behaviour("AZ-01")
def test_a_super_user_needs_no_rule() -> None:
    assert all(refusal(gate(), signed(Command(code), ROOT)) == "" for code in Code)


@pytest.mark.behaviour("AZ-07")
def test_without_authorization_only_users_and_rules_are_kept_for_super_users() -> None:
    found = gate(authorizes=False)
    refused = {code for code in Code if refusal(found, signed(Command(code)))}
    assert refused == {*range(50, 55), *range(3001, 3011)}
    assert refusal(found, Command(Code.HEART_BEAT)) == "username cannot be null."


# -- users -----------------------------------------------------------------------------------------------

NORMAL = User("app", Secret("app-secret"))
ONLY_SUPER = "The super user can only be"


def attempt(change: Any, *args: Any) -> tuple[int, str]:
    with pytest.raises(RemotingError) as caught:
        change(*args)
    assert "secret" not in caught.value.remark
    return caught.value.code, caught.value.remark


@pytest.mark.behaviour("AU-17")
def test_users_are_made_and_changed() -> None:
    told: list[tuple[str, User | None]] = []
    table = Users(lambda name, user: told.append((name, user)))
    table.load([SUPER])
    table.create("app", UserInfo(password="app-secret"), SUPER)
    table.create("ops", UserInfo(password="ops-secret", user_type="SUPER", user_status="Disable"), SUPER)
    assert [user.shown() for user in table.all()] == [
        UserInfo("app", None, "Normal", "enable"),
        UserInfo("ops", None, "Super", "disable"),
        UserInfo("root", None, "Super", "enable"),
    ]
    table.update("app", UserInfo(user_status="disable"), NORMAL)
    found = table.get("app")
    assert found == User("app", Secret("app-secret"), UserType.NORMAL, UserStatus.DISABLE)
    assert found is not None
    assert found.key.made(signed(send())), "a blank password keeps the old one"
    table.update("app", UserInfo(password="another"), NORMAL)
    found = table.get("app")
    assert found is not None
    assert not found.key.made(signed(send()))
    assert User.from_plain("app", found.plain()) == found
    table.delete("app", NORMAL)
    table.delete("app", NORMAL)
    assert [(name, user is None) for name, user in told] == [
        ("app", False),
        ("ops", False),
        ("app", False),
        ("app", False),
        ("app", True),
    ]


@pytest.mark.behaviour("AU-17")
def test_what_is_no_user_is_refused() -> None:
    table = users()
    create, update = table.create, table.update
    assert attempt(create, "app", UserInfo(password="secret"), SUPER) == (16, "The user is existed")
    assert attempt(create, "new", UserInfo(), SUPER) == (16, "password can not be blank")
    assert attempt(create, "", UserInfo(password="secret"), SUPER) == (29, "The username is blank")
    assert attempt(update, " ", UserInfo(password="secret"), SUPER) == (29, "The username is blank")
    assert attempt(update, "new", UserInfo(password="secret"), SUPER) == (16, "The user is not exist")
    long = attempt(create, "n" * 256, UserInfo(password="secret"), SUPER)
    assert long == (29, "username has 256 characters, the limit is 255")
    assert attempt(create, "a\n", UserInfo(password="secret"), SUPER)[0] == 29
    assert attempt(create, "new", UserInfo(password="secret "), SUPER) == (
        29,
        "password has white space at its beginning or end: strip what a file gave",
    )


@pytest.mark.behaviour("AU-45")
def test_an_unknown_type_or_status_changes_nothing() -> None:
    table = users()
    kind = (29, "userType is 'Admin'; expected one of Super, Normal")
    status = (29, "userStatus is 'disabled'; expected one of enable, disable")
    before = table.all()
    assert attempt(table.create, "new", UserInfo(password="secret", user_type="Admin"), SUPER) == kind
    assert attempt(table.create, "new", UserInfo(password="secret", user_status="disabled"), SUPER) == status
    assert attempt(table.update, "app", UserInfo(user_type="Admin"), SUPER) == kind
    assert attempt(table.update, "app", UserInfo(user_status="disabled"), SUPER) == status
    assert table.all() == before


@pytest.mark.behaviour("AU-17")
def test_only_super_users_change_super_users() -> None:
    table = users()
    as_super = UserInfo(password="secret", user_type="Super")
    assert attempt(table.create, "new", as_super, NORMAL) == (1, f"{ONLY_SUPER} create by super user")
    assert attempt(table.update, "app", as_super, NORMAL) == (1, f"{ONLY_SUPER} update by super user")
    assert attempt(table.update, "root", UserInfo(password="secret"), NORMAL)[0] == 1
    assert attempt(table.delete, "root", NORMAL)[0] == 1


@pytest.mark.behaviour("AU-17")
def test_the_last_super_user_stays() -> None:
    table = users()
    last = (16, "root is the last super user who is not disabled: make another one before")
    assert attempt(table.delete, "root", SUPER) == last
    assert attempt(table.update, "root", UserInfo(user_status="disable"), SUPER) == last
    assert attempt(table.update, "root", UserInfo(user_type="Normal"), SUPER) == last
    table.create("idle", UserInfo(password="secret", user_type="Super", user_status="disable"), SUPER)
    assert attempt(table.delete, "root", SUPER) == last
    table.delete("idle", SUPER)
    table.create("ops", UserInfo(password="secret", user_type="Super"), SUPER)
    table.delete("root", SUPER)


def test_users_have_a_limit() -> None:
    table = users()
    user = User("n", Secret("secret"))
    table.load(User(f"n{number}", user.secret) for number in range(MAX_USERS - 2))
    assert attempt(table.create, "n", UserInfo(password="secret"), SUPER) == (
        16,
        "there are 10000 users, the limit",
    )


@pytest.mark.behaviour("AU-18")
def test_no_text_of_a_user_has_the_secret() -> None:
    user = User("app", Secret("pssst"))
    assert (
        "pssst"
        not in f"{user} {user!r} {user.shown()!r} {user.shown().encode()!r} {UserInfo('a', 'pssst')!r}"
    )


@pytest.mark.behaviour("AZ-09")
def test_while_observing_only_users_and_rules_are_closed() -> None:
    observing = True
    rules = Rules(lambda name, acl: None)
    found = AuthGate(asked_of(REQUESTS, PLACE), users(), rules, authorizes=True, observes=lambda: observing)
    unreadable = signed(Command(Code.HEART_BEAT, {}, b"no json"))
    for command in (Command(Code.GET_BROKER_CONFIG), send(), unreadable):
        found.check(command, "10.0.0.9")
    with pytest.raises(RemotingError, match=r"username cannot be null\."):
        found.check(Command(Code.AUTH_CREATE_USER, {"username": "me"}), "10.0.0.9")
    assert found.refusals.plain() == [
        {"user": "", "why": "no keys", "action": "", "resource": "", "from": "10.0.0.9", "count": 3}
    ]
    observing = False
    with pytest.raises(RemotingError, match=r"username cannot be null\."):
        found.check(send(), "10.0.0.9")


@pytest.mark.behaviour("AZ-10")
def test_refusals_are_counted_by_kind_and_their_kinds_are_limited() -> None:
    refusals = Refusals()
    for number in range(MAX_KINDS + 5):
        for _ in range(2 if number == 7 else 1):
            refusals.note(Refusal(f"user\x1b{number}", "wrong keys"))
    told = refusals.plain()
    assert (len(told), refusals.others) == (MAX_KINDS, 5)
    assert (told[0]["user"], told[0]["count"]) == ("user?7", 2)
    refusals.note(Refusal("user\x1b7", "wrong keys"))
    assert refusals.plain()[0]["count"] == 3
