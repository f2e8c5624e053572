"""Clients of ours at Apache's brokers that require keys and TLS; Java clients at ours with TLS."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.certificates import Authority
from tests.interop import java_cells
from tests.interop.java_cells import expected, same_messages
from tests.interop.world import CellError, Fact, Place, World, check, equal, wait_registered

from orbitmq import (
    ConsumeFrom,
    Consumer,
    Credentials,
    Message,
    NotPermittedError,
    Producer,
    PullConsumer,
    Reader,
    ReceivedMessage,
    SimpleConsumer,
    Tls,
    TransactionProducer,
    TransactionState,
)
from orbitmq.admin import Admin
from orbitmq.errors import OrbitError
from orbitmq.runtime import system_runtime
from orbitmq.transport.client import RemotingClient
from orbitmq.transport.identity import Identity
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command

ROOT = Credentials("rootuser", "root-secret-1")
APP = Credentials("appuser", "app-secret-1")
WRONG = Credentials("appuser", "app-secret-2")
NOBODY = Credentials("nobodyatall", "app-secret-1")
OPEN, CLOSED = "orders", "invoices"
"""Topics that APP may use, and may not."""
TIMEOUT_S = 60

_AUTHENTICATION = "org.apache.rocketmq.auth.authentication.provider."
_AUTHORIZATION = "org.apache.rocketmq.auth.authorization.provider."
ACL_2 = {
    "authenticationEnabled": "true",
    "authenticationProvider": f"{_AUTHENTICATION}DefaultAuthenticationProvider",
    "authenticationMetadataProvider": f"{_AUTHENTICATION}LocalAuthenticationMetadataProvider",
    "initAuthenticationUser": '{"username":"rootuser","password":"root-secret-1"}',
    "innerClientAuthenticationCredentials": '{"accessKey":"rootuser","secretKey":"root-secret-1"}',
    "authorizationEnabled": "true",
    "authorizationProvider": f"{_AUTHORIZATION}DefaultAuthorizationProvider",
    "authorizationMetadataProvider": f"{_AUTHORIZATION}LocalAuthorizationMetadataProvider",
}
PLAIN_ACL = """
accounts:
- accessKey: rootuser
  secretKey: root-secret-1
  admin: true
- accessKey: appuser
  secretKey: app-secret-1
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: PUB|SUB
  topicPerms:
  - orders=PUB|SUB
"""


@contextmanager
def java_options(**options: str) -> Iterator[None]:
    """System properties of the Java programs that start inside; ``_`` in a name stands for a dot."""
    words = [f"-D{name.replace('_', '.')}={value}" for name, value in options.items()]
    os.environ["JAVA_TOOL_OPTIONS"] = " ".join(words)
    try:
        yield
    finally:
        del os.environ["JAVA_TOOL_OPTIONS"]


def tls_servers(ca: str, cert: str, key: str) -> dict[str, str]:
    """Properties of servers that ask their clients for certificates; names as of :func:`java_options`."""
    return {
        "tls_server_certPath": cert,
        "tls_server_keyPath": key,
        "tls_server_need_client_auth": "require",
        "tls_server_authClient": "true",
        "tls_server_trustCertPath": ca,
    }


def tls_clients(ca: str, cert: str, key: str) -> dict[str, str]:
    """Properties of Java clients that check the server's certificate and show one of their own."""
    return {
        "tls_enable": "true",
        "tls_test_mode_enable": "false",
        "tls_client_authServer": "true",
        "tls_client_trustCertPath": ca,
        "tls_client_certPath": cert,
        "tls_client_keyPath": key,
    }


@contextmanager
def secured(
    world: World, kind: str, settings: dict[str, str], tls: dict[str, str] | None = None
) -> Iterator[Place]:
    """A name server and a broker of Apache's that requires keys.

    Args:
        tls: system properties of both. The broker takes TLS only, the name server takes both.
    """
    maker = world.maker(kind)
    folder = world.folder / world.fresh("secured").replace(" ", "-")
    with java_options(**(tls or {})):
        name_server = maker.name_server(folder)
    with world.server_stopped(name_server) as names:
        if "aclEnable" in settings:
            settings = {**settings, "rocketmqHome": str(folder)}
            (folder / "conf").mkdir(exist_ok=True)
            (folder / "conf" / "plain_acl.yml").write_text(PLAIN_ACL)
        # Not asked whether it answers: it refuses a heartbeat without keys.
        with java_options(**({**tls, "tls_server_mode": "enforcing", "tls_enable": "false"} if tls else {})):
            started = maker.broker(
                folder,
                names.address,
                wait=False,
                flushDiskType="ASYNC_FLUSH",
                mappedFileSizeCommitLog=str(1 << 20),
                # A message that a handler refuses comes again after the third of them.
                messageDelayLevel="1s 5s 1s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
                waitTimeMillsInSendQueue="20000",
                osPageCacheBusyTimeOutMills="20000",
                transactionTimeOut="1000",
                transactionCheckInterval="2000",
                transactionOpBatchInterval="1000",
                **settings,
            )
        with world.server_stopped(started) as broker:
            wait_registered(names.port)
            yield Place(f"secured {kind}", names, broker)
    shutil.rmtree(folder, ignore_errors=True)


async def _told(
    place: Place, code: int, fields: dict[str, str], body: dict[str, Any], tls: Tls | None
) -> None:
    client = RemotingClient(system_runtime(), identity=Identity(ROOT, tls))
    try:
        answer = await client.request(
            place.broker.address, Command(code, fields, json.dumps(body).encode()), 10_000
        )
        equal(answer.code, int(ResponseCode.SUCCESS), f"request {code}: {answer.remark}")
    finally:
        await client.close()


async def _make_user(place: Place, tls: Tls | None = None) -> None:
    """The user APP with rights on one topic and all groups, as mqadmin's createUser and createAcl make it."""
    user = {
        "username": APP.access_key,
        "password": "app-secret-1",
        "userType": "Normal",
        "userStatus": "enable",
    }
    await _told(place, 3001, {"username": APP.access_key}, user, tls)
    subject = f"User:{APP.access_key}"
    rights = [("Topic:orders", ["Pub", "Sub"]), ("Topic:RMQ_SYS_TRACE_TOPIC", ["Pub"]), ("Group:*", ["Sub"])]
    entries = [
        {"resource": resource, "actions": actions, "sourceIps": [], "decision": "Allow"}
        for resource, actions in rights
    ]
    policies = [{"policyType": "Custom", "entries": entries}]
    await _told(place, 3006, {"subject": subject}, {"subject": subject, "policies": policies}, tls)


async def make_topics(place: Place, tls: Tls | None = None) -> None:
    """The topics OPEN and CLOSED."""
    async with Admin(place.ns, credentials=ROOT, tls=tls) as admin:
        for topic in (OPEN, CLOSED):
            await admin.topics.create(topic, queues=2)


async def _refused(work: Callable[[], Awaitable[object]], what: str, *words: str) -> None:
    """The work ends with NotPermittedError, whose text has the words and no secret."""
    try:
        found = await work()
    except NotPermittedError as error:
        for word in words:
            check(word in str(error), f"{what}: {word!r} is not in: {error}")
        check("app-secret" not in str(error), f"{what} shows a secret: {error}")
    else:
        check(False, f"{what} was not refused: {found!r}")


async def _until(condition: Callable[[], object], what: Callable[[], object]) -> None:
    """Wait until the condition holds; else the cell fails with ``what``."""
    for _ in range(10 * TIMEOUT_S):
        if condition():
            return
        await asyncio.sleep(0.1)
    check(False, f"not within {TIMEOUT_S} s: {what()}")


async def _clients(world: World, place: Place, *, pops: bool, tls: Tls | None = None) -> None:
    """Everything that a user with rights does: send, push, pull, pop, transactions, traces, reading."""
    common: dict[str, Any] = {"name_servers": place.ns, "credentials": APP, "tls": tls}
    first: dict[str, Any] = {**common, "consume_from": ConsumeFrom.FIRST}
    sending: dict[str, Any] = {**common, "timeout": TIMEOUT_S}
    seen: list[bytes] = []
    asked: list[bytes] = []

    async def handle(message: ReceivedMessage) -> None:
        if message.body == b"again" and message.reconsume_times == 0:
            raise ValueError("the first time")
        seen.append(message.body)

    async def decide(message: ReceivedMessage) -> TransactionState:
        asked.append(message.body)
        return TransactionState.COMMIT

    async with Producer(world.fresh("pg"), trace=True, **sending) as producer:
        await producer.send(Message(OPEN, b"one"))
        await producer.send_batch([Message(OPEN, b"two"), Message(OPEN, b"three")])
        await producer.send_oneway(Message(OPEN, b"four"))
        await producer.send(Message(OPEN, b"again"))
    async with TransactionProducer(world.fresh("tg"), check=decide, **sending) as transactions:
        async with transactions.transaction(Message(OPEN, b"committed")):
            pass
        async with transactions.transaction(Message(OPEN, b"decided")) as open_one:
            open_one.leave_open()
        await _until(lambda: asked, lambda: "the check of a transaction")
        await asyncio.sleep(1)
    wanted = {b"one", b"two", b"three", b"four", b"again", b"committed", b"decided"}
    consumer = Consumer(world.fresh("cg"), trace=True, **first)
    consumer.subscribe(OPEN)
    async with consumer:
        task = asyncio.ensure_future(consumer.run(handle))
        await _until(lambda: set(seen) == wanted, lambda: f"pushed {sorted(seen)}")
    await task
    pull_group = world.fresh("pull")
    async with PullConsumer(pull_group, **first) as pulling:
        pulling.subscribe(OPEN)
        polled: set[bytes] = set()
        async with asyncio.timeout(TIMEOUT_S):
            while polled != wanted:
                polled |= {message.body for message in await pulling.poll(timeout=5)}
        await pulling.commit()
    if pops:
        async with SimpleConsumer(world.fresh("pop"), **first) as simple:
            simple.subscribe(OPEN)
            popped: set[bytes] = set()
            async with asyncio.timeout(TIMEOUT_S):
                while popped != wanted:
                    for message in await simple.receive(wait=5):
                        await simple.ack(message)
                        popped.add(message.body)
    async with Admin(place.ns, credentials=ROOT, tls=tls) as admin:
        lag = (await admin.groups.lag(pull_group)).whole()
        equal(sum(each.lag for each in lag if each.queue.topic == OPEN), 0, "lag of the pull consumer")


async def _refusals(place: Place, *, pops: bool, keys: str, unknown: str, right: str) -> None:
    """What is refused: wrong secret, unknown user, no credentials, a topic without rights, administration."""

    async def send(credentials: Credentials | None, topic: str = OPEN) -> object:
        async with Producer("refused", name_servers=place.ns, credentials=credentials) as producer:
            return await producer.send(Message(topic, b"x"))

    await _refused(lambda: send(WRONG), "wrong secret", "SEND_MESSAGE_V2, topic orders", "'appuser'", keys)
    await _refused(lambda: send(NOBODY), "unknown user", "'nobodyatall'", unknown)
    await _refused(lambda: send(None), "no credentials", "to a client without credentials")
    await _refused(lambda: send(APP, CLOSED), "a topic without rights", "topic invoices", "'appuser'", right)

    async def poll() -> object:
        async with PullConsumer("refused", name_servers=place.ns, credentials=WRONG) as pulling:
            pulling.subscribe(OPEN)
            return await pulling.poll(timeout=10)

    await _refused(poll, "a pull consumer", keys)

    async def receive() -> object:
        async with SimpleConsumer("refused", name_servers=place.ns, credentials=WRONG) as simple:
            simple.subscribe(OPEN)
            return await simple.receive(wait=1)

    if pops:
        await _refused(receive, "a simple consumer", keys)

    async def create() -> object:
        async with Admin(place.ns, credentials=APP) as admin:
            return await admin.topics.create("mine", queues=2)

    await _refused(create, "administration", "UPDATE_AND_CREATE_TOPIC, topic mine")


async def _read(place: Place) -> None:
    async with Reader(OPEN, name_servers=place.ns, credentials=ROOT) as reader:
        check(len([message async for message in reader]) >= 7, "the reader found too little")


def acl_2(world: World) -> None:
    """ACL 2.0 of 5.5.0."""

    async def run(place: Place) -> None:
        await _make_user(place)
        await make_topics(place)
        await _clients(world, place, pops=True)
        await _read(place)
        await _refusals(
            place,
            pops=True,
            keys="check signature failed",
            unknown="User:nobodyatall is not found",
            right="no permission to access Topic:invoices",
        )

    with secured(world, "apache", ACL_2) as place:
        asyncio.run(run(place))


def acl_1(world: World) -> None:
    """ACL 1.0 of 4.9.7, whose brokers cannot pop."""

    async def run(place: Place) -> None:
        await make_topics(place)
        await _clients(world, place, pops=False)
        await _read(place)
        await _refusals(
            place, pops=False, keys="signature", unknown="nobodyatall", right="No default permission"
        )

    with secured(world, "apache 4.9", {"aclEnable": "true"}) as place:
        asyncio.run(run(place))


def tls(world: World) -> None:
    """TLS of 5.5.0, mutual, with ACL 2.0."""
    authority, stranger = Authority(world.folder / "tls"), Authority(world.folder / "stranger", "stranger")
    server, mine, other = authority.issue("server"), authority.issue("app"), stranger.issue("app")
    properties = {"tls_test_mode_enable": "false", **tls_servers(authority.ca, server.cert, server.key)}
    good = Tls(ca=authority.ca, cert=mine.cert, key=mine.key)

    async def failing(place: Place, tls: Tls | None, what: str, *words: str) -> None:
        try:
            async with Producer("g", name_servers=place.ns, credentials=APP, tls=tls) as producer:
                found = await producer.send(Message(OPEN, b"x"))
        except OrbitError as error:
            check(any(word in str(error) for word in words), f"{what}: {error}")
        else:
            check(False, f"{what} was not refused: {found!r}")

    async def run(place: Place) -> None:
        await _make_user(place, good)
        await make_topics(place, good)
        await _clients(world, place, pops=True, tls=good)
        await failing(place, None, "a plain client", "it may ask for TLS", "it asks for TLS")
        unknown = Tls(ca=stranger.ca, cert=mine.cert, key=mine.key)
        await failing(place, unknown, "an unknown authority", "an authority that this client does not trust")
        await failing(place, Tls(ca=authority.ca), "no certificate", "certificate of the client")
        strange = Tls(ca=authority.ca, cert=other.cert, key=other.key)
        await failing(place, strange, "a strange certificate", "client's certificate (Tls.cert)")

    with secured(world, "apache", ACL_2, properties) as place:
        asyncio.run(run(place))


def tls_of_ours(world: World) -> None:
    """Apache's Java client of 5.5.0 and ours, at our servers with mutual TLS; the broker enforces it."""
    authority = Authority(world.folder / "tls-ours")
    server, mine = authority.issue("server"), authority.issue("app")
    servers = tls_servers(authority.ca, server.cert, server.key)
    clients = tls_clients(authority.ca, mine.cert, mine.key)
    with secured(world, "ours", {}, servers) as place:
        with java_options(**clients):
            # TLS sees bytes: a small frame, and one of several of its records.
            for cell in (java_cells.sync, java_cells.compressed):
                cell(world, place)
        try:
            java_cells.sync(world, place)
        except CellError:
            pass
        else:
            check(False, "a Java client without TLS was served")
        good = Tls(ca=authority.ca, cert=mine.cert, key=mine.key)
        asyncio.run(make_topics(place, good))
        asyncio.run(_clients(world, place, pops=True, tls=good))


def certificate_user(world: World) -> None:
    """Java programs without keys are the users of their certificates at our broker."""
    authority = Authority(world.folder / "tls-users")
    server = authority.issue("mq-1")
    servers = tls_servers(authority.ca, server.cert, server.key)
    # The broker's own certificate names no user: it signs with its keys.
    named = {**ACL_2, "tls.server.clientCertificateUser": "cn"}

    def properties(name: str) -> dict[str, str]:
        made = authority.issue(name)
        return tls_clients(authority.ca, made.cert, made.key)

    with secured(world, "ours", named, servers) as place:
        operator = authority.issue("operator")
        tls = Tls(ca=authority.ca, cert=operator.cert, key=operator.key)
        asyncio.run(_make_user(place, tls))
        asyncio.run(make_topics(place, tls))
        sends = {"ns": place.ns, "how": "async", "count": 5}
        with java_options(**properties(APP.access_key)):
            sent = world.facts("Send", topic=OPEN, **sends)
            equal([fact["status"] for fact in sent], ["SEND_OK"] * 5, "sends of the certificate's user")
            group = world.fresh("java_group")
            taken = world.facts("Receive", ns=place.ns, topic=OPEN, group=group, count=5)
            same_messages(taken, expected("async", 5))
            refused = world.facts("Send", topic=CLOSED, refused=1, **sends)
        _all_refused(
            refused, f"CODE: 16  DESC: User:{APP.access_key} has no permission to access Topic:{CLOSED}"
        )
        with java_options(**properties("stranger")):
            refused = world.facts("Send", topic=OPEN, refused=1, **sends)
        _all_refused(refused, "CODE: 16  DESC: User:stranger of the client's certificate is unknown.")


def _all_refused(facts: list[Fact], words: str) -> None:
    for fact in facts:
        equal(fact["fact"], "refused", f"a send, {words!r}")
        check(words in fact["error"], f"{words!r} is not in: {fact}")


CELLS: dict[str, Callable[[World], None]] = {
    "Java clients as users of certificates": certificate_user,
    "our clients, 5.5.0 with ACL 2.0": acl_2,
    "our clients, 4.9.7 with ACL 1.0": acl_1,
    "our clients, 5.5.0 with TLS": tls,
    "Java clients, ours with TLS": tls_of_ours,
}
