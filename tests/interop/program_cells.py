"""Programs of users, with Apache's clients, at our servers; and at Apache's, which shows that they are right.

A Spring Boot program (``spring/Spring.java``) and one with the remoting client for Go (``go/main.go``) send
in each way, listen concurrently and in order, ask and answer, and end transactions. They run without keys and
with keys (ACL 2.0), Spring Boot with keys and TLS too, for which ``orbitmq tls`` makes the certificates.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.servers import PEER_VERSION, classpath
from benchmarks.servers import ROOT as SOURCES
from tests.interop.go_programs import go_program
from tests.interop.secured_cells import (
    ACL_2,
    APP,
    ROOT,
    java_options,
    secured,
    tls_clients,
    tls_servers,
)
from tests.interop.world import (
    JAVA_SOURCES,
    QUICK_JAVA,
    Fact,
    Place,
    World,
    check,
    compile_java,
    equal,
    running_program,
)

from orbitmq import Credentials, Tls
from orbitmq.admin import Admin

SPRING = SOURCES / "tests" / "interop" / "spring"
STARTER = "2.3.4"
GO = SOURCES / "tests" / "interop" / "go" / "main.go"
GO_CLIENT = "github.com/apache/rocketmq-client-go/v2@v2.1.3-0.20251226070945-2173d070fd1b"
TOPICS = ("plain", "orderly", "orders", "questions", "transacted")
STATES = [("SEND_OK", "COMMIT_MESSAGE"), ("SEND_OK", "ROLLBACK_MESSAGE"), ("SEND_OK", "UNKNOW")]
LISTENED = sorted(
    [f"{how} {number}" for how in ("sync", "async", "batch") for number in range(4)]
    + ["oneway", "refused", "level", "timer"]
)
QUESTIONS = ("question 0", "question 1", "question 2", "question without waiting")


@dataclass(frozen=True)
class Setting:
    """Where and how a program runs.

    Attributes:
        prefix: of its topics and groups.
        tls: whether it speaks TLS.
    """

    place: Place
    prefix: str
    credentials: Credentials | None = None
    tls: bool = False

    @property
    def secret(self) -> str:
        assert self.credentials is not None
        secret = self.credentials.secret_key
        return secret if isinstance(secret, str) else secret.reveal()


@dataclass(frozen=True)
class Program:
    """A program that says what it sent and received.

    Attributes:
        command: the start of its command line. Makes the program first, when it is not there yet; raises
            PeerUnavailableError when what it needs cannot be fetched.
        options: its options in a setting.
        judge: checks what only this program says.
    """

    command: Callable[[World], list[str]]
    options: Callable[[Setting], dict[str, str]]
    judge: Callable[[Sequence[Fact]], None] = lambda facts: None

    def run(self, world: World, setting: Setting) -> None:
        """Run it to its end and check what it says."""
        with running_program(self.command(world), **self.options(setting)) as running:
            facts = running.wait_for("done", 150)[:-1]
        judge(setting.place, facts)
        self.judge(facts)


def spring_command(world: World) -> list[str]:
    jars = classpath(
        f"spring-{STARTER}-{PEER_VERSION}",
        SPRING / "pom.xml",
        f"-Dstarter.version={STARTER}",
        f"-Drocketmq.version={PEER_VERSION}",
    )
    classes = world.folder / "classes-spring"
    if not classes.exists():
        compile_java(classes, jars, [SPRING / "Spring.java", JAVA_SOURCES / "Facts.java"])
    logs = [f"-Duser.home={world.folder}", f"-Drocketmq.client.logRoot={world.folder}"]
    return ["java", *QUICK_JAVA, "-Xmx256m", *logs, "-cp", f"{classes}:{jars}", "Spring"]


def spring_options(setting: Setting) -> dict[str, str]:
    properties = {
        "prefix": setting.prefix,
        "rocketmq.name-server": setting.place.ns,
        "rocketmq.producer.group": f"{setting.prefix}_producer",
        "rocketmq.producer.enable-msg-trace": "true",
        "rocketmq.producer.send-message-timeout": "20000",
        "rocketmq.producer.tls-enable": str(setting.tls).lower(),
        "logging.level.root": "warn",
        "spring.main.banner-mode": "off",
    }
    if setting.credentials:
        for side in ("producer", "consumer"):
            properties[f"rocketmq.{side}.access-key"] = setting.credentials.access_key
            properties[f"rocketmq.{side}.secret-key"] = setting.secret
    return {f"--{name}": value for name, value in properties.items()}


def judge_spring(facts: Sequence[Fact]) -> None:
    orders = sorted((fact["customer"], fact["pieces"]) for fact in facts if fact["fact"] == "order")
    equal(orders, [(f"Zoë {number}", str(number)) for number in range(3)], "objects received")


SPRING_BOOT = Program(spring_command, spring_options, judge_spring)


def go_command(world: World) -> list[str]:
    return [str(go_program("go-remoting", GO, GO_CLIENT))]


def go_options(setting: Setting) -> dict[str, str]:
    options = {"ns": setting.place.ns, "prefix": setting.prefix}
    if setting.credentials:
        options |= {"ak": setting.credentials.access_key, "sk": setting.secret}
    return options


GO_REMOTING = Program(go_command, go_options)


async def prepare(setting: Setting, root: Credentials | None = None, tls: Tls | None = None) -> None:
    """The program's topics; with keys also its user with the rights that it needs."""
    async with Admin(setting.place.ns, credentials=root, tls=tls) as admin:
        for topic in TOPICS:
            await admin.topics.create(f"{setting.prefix}_{topic}", queues=4)
        if not setting.credentials:
            return
        user = setting.credentials.access_key
        await admin.access.create_user(user, setting.secret)
        rights = {
            f"Topic:{setting.prefix}*": ["Pub", "Sub"],
            f"Group:{setting.prefix}*": ["Sub"],
            "Topic:RMQ_SYS_TRACE_TOPIC": ["Pub"],
            "Topic:DefaultCluster_REPLY_TOPIC": ["Pub"],
        }
        if setting.place.kind.endswith("apache"):
            rights[f"Topic:{setting.prefix}*"].append("Get")  # of a consumer that begins at the last message
            # Apache's broker asks about a transaction with this topic, and the Java client answers with it.
            rights["Topic:RMQ_SYS_TRANS_HALF_TOPIC"] = ["Pub"]
        for resource, actions in rights.items():
            await admin.access.set_rule(user, resource, actions)


def judge(place: Place, facts: Sequence[Fact]) -> None:
    """Check what every program says."""

    def named(name: str, **fields: str) -> list[Fact]:
        return [fact for fact in facts if fact["fact"] == name and fields.items() <= fact.items()]

    equal({fact["status"] for fact in named("sent")}, {"SEND_OK"}, "statuses of sends")
    listened = named("received", who="plain")
    equal(sorted(fact["body"] for fact in listened), LISTENED, "messages that the listener received")
    for fact in listened:
        body = fact["body"]
        equal((fact["keys"], fact["colour"]), (f"of {body}", "red"), f"keys and colour of {body!r}")
        equal(fact["reconsumed"], "1" if body == "refused" else "0", f"reconsume times of {body!r}")
        least = {"level": 950, "timer": 1400}.get(body, 0)
        check(least <= int(fact["waited"]) < 30_000, f"{body!r} was stored after {fact['waited']} ms")
    for key in range(3):
        bodies = [fact["body"] for fact in named("received", who="orderly") if f"key {key} " in fact["body"]]
        equal(bodies, [f"key {key} number {key + 3 * turn}" for turn in range(4)], f"order of key {key}")
    replies = [fact["body"] for fact in named("reply")]
    equal(replies, [f"answer to {question}" for question in QUESTIONS], "replies")
    equal([(fact["status"], fact["state"]) for fact in named("half")], STATES, "half messages")
    bodies = [fact["body"] for fact in named("received", who="transacted")]
    if place.kind.endswith("apache"):
        bodies = list(set(bodies))  # see java_cells.transactions
    equal(sorted(bodies), ["COMMIT", "UNKNOWN"], "messages of transactions")
    asked = {fact["body"] for fact in named("asked")}  # on a busy machine, others too
    check("UNKNOWN" in asked, f"the broker asked about {sorted(asked)}")


def plain(program: Program) -> Callable[[World, Place], None]:
    """The cell of a program without keys."""

    def run(world: World, place: Place) -> None:
        setting = Setting(place, world.fresh("program"))
        asyncio.run(prepare(setting))
        program.run(world, setting)

    return run


def with_keys(program: Program, kind: str) -> Callable[[World], None]:
    """The cell of a program with keys, at servers of a kind."""

    def run(world: World) -> None:
        with secured(world, kind, ACL_2) as place:
            setting = Setting(place, world.fresh("program"), APP)
            asyncio.run(prepare(setting, ROOT))
            program.run(world, setting)

    return run


def _certificates(folder: Path) -> dict[str, str]:
    """What ``orbitmq tls`` makes: an authority, a certificate of the servers and one of the program."""
    folder.mkdir()
    for words in ("make-ca ca", "make-cert ca server --host 127.0.0.1", "make-cert ca app"):
        command = [sys.executable, "-m", "orbitmq", "tls", *words.split()]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
        equal(done.returncode, 0, f"exit code of orbitmq tls {words}: {done.stderr}")
    return {name: str(folder / name) for name in ("ca.pem", "server.pem", "server.key", "app.pem", "app.key")}


def spring_with_tls(kind: str) -> Callable[[World], None]:
    """The cell with keys and TLS, at servers of a kind; the broker serves nobody without a certificate."""

    def run(world: World) -> None:
        made = _certificates(world.folder / world.fresh("program-tls"))
        servers = tls_servers(made["ca.pem"], made["server.pem"], made["server.key"])
        clients = tls_clients(made["ca.pem"], made["app.pem"], made["app.key"])
        tls = Tls(ca=made["ca.pem"], cert=made["app.pem"], key=made["app.key"])
        if kind == "apache":
            servers["tls_test_mode_enable"] = "false"  # else its certificates are not read
        with secured(world, kind, ACL_2, servers) as place:
            setting = Setting(place, world.fresh("program"), APP, tls=True)
            asyncio.run(prepare(setting, ROOT, tls))
            with java_options(**clients):
                SPRING_BOOT.run(world, setting)

    return run


PLACE_CELLS: dict[str, Callable[[World, Place], None]] = {
    "Spring Boot": plain(SPRING_BOOT),
    "go": plain(GO_REMOTING),
}
CELLS: dict[str, Callable[[World], None]] = {
    "Spring Boot, ours with ACL 2.0": with_keys(SPRING_BOOT, "ours"),
    "Spring Boot, 5.5.0 with ACL 2.0": with_keys(SPRING_BOOT, "apache"),
    "Spring Boot, ours with ACL 2.0 and TLS": spring_with_tls("ours"),
    "Spring Boot, 5.5.0 with ACL 2.0 and TLS": spring_with_tls("apache"),
    "go, ours with ACL 2.0": with_keys(GO_REMOTING, "ours"),
}
