"""RocketMQ's own proxy in front of our name server and broker, with RocketMQ's gRPC client at it.

There is one broker here, and no call may take longer than its wait. With several brokers that client stalls,
with RocketMQ's brokers as with ours: it asks the queues of one broker after the other and waits its whole
time at an empty one, since the proxy pops at that broker alone. With users, the proxy signs its own requests
with the keys of a super user, and checks those of its clients itself.
"""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from benchmarks.servers import (
    PEER_VERSION,
    POM,
    Apache,
    ServerError,
    child_settings,
    classpath,
    free_ports,
)
from tests.interop.access_cells import keys_of
from tests.interop.secured_cells import ACL_2, APP, ROOT, WRONG, secured
from tests.interop.world import (
    JAVA_SOURCES,
    Fact,
    Place,
    RunningProgram,
    World,
    check,
    compile_java,
    equal,
    running_java,
)

from orbitmq.admin import Admin

ROUNDS, MESSAGES, QUEUES = 20, 10, 8
START_S, STARTS = 300.0, 3
# The client waits for 2 s at most, the recall for an answer; a busy machine doubles that.
LONGEST_MS = 6_000
SOURCES = (JAVA_SOURCES.parent / "grpc" / "Grpc.java", JAVA_SOURCES / "Facts.java")


def proxy_jars() -> str:
    """The class path of the proxy; raises as `classpath` does."""
    return classpath(f"proxy-{PEER_VERSION}", POM, f"-Drocketmq.version={PEER_VERSION}", "-Pproxy")


def client_jars() -> str:
    """The class path of the gRPC client; raises as `classpath` does."""
    return classpath("grpc-client", SOURCES[0].parent / "pom.xml")


@contextmanager
def proxy(folder: Path, name_server: str, more: Mapping[str, object] = MappingProxyType({})) -> Iterator[str]:
    """RocketMQ's proxy in cluster mode; its gRPC address.

    Args:
        more: settings.
    """
    port = free_ports(2)
    settings = {
        "rocketMQClusterName": "DefaultCluster",
        "namesrvAddr": name_server,
        "grpcServerPort": port,
        "remotingListenPort": port + 1,
        **more,
    }
    (folder / "conf").mkdir(parents=True)
    conf = folder / "conf" / "rmq-proxy.json"
    conf.write_text(json.dumps(settings))
    main = ["org.apache.rocketmq.proxy.ProxyStartup", "-pm", "cluster", "-pc", str(conf), "-n", name_server]
    command = [*Apache(proxy_jars()).java(folder, 256), *main]
    process = _started(command, port, folder / "proxy.log")
    try:
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def _started(command: list[str], port: int, path: Path) -> subprocess.Popen[bytes]:
    """The process, when it serves. One that ends is started again: it waits for no answer longer than 3 s."""
    deadline = time.monotonic() + START_S
    for _ in range(STARTS):
        with path.open("w") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, preexec_fn=child_settings)
        while process.poll() is None and time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
            except OSError:
                time.sleep(0.1)
            else:
                return process
        process.kill()
        process.wait()
    raise ServerError(f"the proxy does not serve: {path.read_text()[-500:]}")


@contextmanager
def client(folder: Path, **options: object) -> Iterator[RunningProgram]:
    """The program Grpc, compiled against the gRPC client."""
    classes = folder / "classes"
    if not classes.exists():
        # Facts.java uses a class of the other client.
        compile_java(classes, f"{client_jars()}:{proxy_jars()}", SOURCES)
    command = Apache(f"{classes}:{client_jars()}").java(folder, 128)
    with running_java(command, "Grpc", **options) as program:
        yield program


def rounds(world: World) -> None:
    """Sends, recalls, receives and acknowledgements through the proxy; no call stands still."""
    folder = world.folder / "proxy"
    with (
        world.server_stopped(world.ours.name_server(folder)) as ns,
        world.server_stopped(world.broker("ours", folder, ns.address)) as broker,
        proxy(folder / "proxy", ns.address) as endpoints,
    ):
        check(broker.ready_s, "the broker serves")
        everywhere = ["-n", ns.address, "-c", "DefaultCluster"]
        queues = ["-r", str(QUEUES), "-w", str(QUEUES)]
        world.admin(
            [
                ["updateTopic", *everywhere, "-t", "proxied", *queues, "-a", "+message.type=NORMAL"],
                ["updateTopic", *everywhere, "-t", "proxied_later", *queues, "-a", "+message.type=DELAY"],
                ["updateSubGroup", *everywhere, "-g", "proxied_group"],
            ]
        )
        with client(
            folder / "client", endpoints=endpoints, topic="proxied", delayed="proxied_later",
            group="proxied_group", rounds=ROUNDS,
        ) as program:  # fmt: skip
            facts = program.wait_for("done", timeout_s=120)
    ended = [fact for fact in facts if fact["fact"] == "round"]
    equal(len(ended), ROUNDS, "rounds whose messages all came")
    received = sum(int(fact["count"]) for fact in facts if fact["fact"] == "received")
    equal(received, ROUNDS * (MESSAGES + 1), "messages received, each once")
    longest = max(int(fact["ms"]) for fact in facts if fact["fact"] in ("received", "recalled"))
    check(longest < LONGEST_MS, f"a receive or recall took {longest} ms")


_PROVIDERS = "org.apache.rocketmq.proxy.auth.Proxy"
WITH_USERS = {
    "authenticationEnabled": True,
    "authenticationProvider": ACL_2["authenticationProvider"],
    "authenticationMetadataProvider": f"{_PROVIDERS}AuthenticationMetadataProvider",
    "authorizationEnabled": True,
    "authorizationProvider": ACL_2["authorizationProvider"],
    "authorizationMetadataProvider": f"{_PROVIDERS}AuthorizationMetadataProvider",
    "innerClientAuthenticationCredentials": ACL_2["innerClientAuthenticationCredentials"],
    # Without it the proxy signs no request of its own. The broker then refuses the one that makes its topic
    # of heartbeats, and the proxy does not start.
    "enableAclRpcHookForClusterMode": True,
}


def users(world: World) -> None:
    """The proxy checks keys and rights by what our broker says of users, their passwords too."""

    async def prepare(place: Place) -> None:
        keys = keys_of(APP)
        async with Admin(place.ns, credentials=ROOT, timeout=60) as admin:
            await admin.topics.create("proxied", queues=2, attributes={"message.type": "NORMAL"})
            await admin.topics.create("proxied_later", queues=2, attributes={"message.type": "DELAY"})
            await admin.groups.create("proxied_group")
            await admin.access.create_user(keys["ak"], keys["sk"])
            await admin.access.set_rule(APP.access_key, "Topic:proxied*", ["Pub", "Sub"])
            await admin.access.set_rule(APP.access_key, "Group:proxied_group", ["Sub"])

    open_to_proxies = {"authRevealPasswords": "true", "recallMessageEnable": "true"}
    with secured(world, "ours", {**ACL_2, **open_to_proxies}) as place:
        asyncio.run(prepare(place))
        folder = world.folder / "proxy-users"
        with proxy(folder / "proxy", place.ns, WITH_USERS) as endpoints:
            given = {
                "endpoints": endpoints, "topic": "proxied", "delayed": "proxied_later",
                "group": "proxied_group", "rounds": 1,
            }  # fmt: skip
            # The proxy gives our broker 3 s for an answer: at a slow machine the first try may fail.
            tries = [_said(folder, **given, **keys_of(APP))]
            while tries[-1]["fact"] == "refused" and len(tries) < STARTS:
                tries.append(_said(folder, **given, **keys_of(APP)))
            equal(tries[-1]["fact"], "round", f"a round with right keys, {tries}")
            for keys, words in (
                (keys_of(WRONG), "check signature failed."),
                ({}, "username cannot be null."),
            ):
                said = _said(folder, **given, **keys)
                check(words in said.get("cause", ""), f"a client with {keys or 'no keys'}: {said}")


def _said(folder: Path, **options: object) -> Fact:
    """How one round of a client ended: the fact "round" or "refused"."""
    with client(folder / "client", **options, refused=1) as program:
        return program.wait_for("done")[-2]


CELLS: dict[str, Callable[[World], None]] = {
    f"proxy {PEER_VERSION} with users in front of ours": users,
    f"proxy {PEER_VERSION} in front of ours, {ROUNDS} rounds": rounds,
}
