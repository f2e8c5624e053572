"""Cells of `make interop-grpc` at a broker that requires keys and rights.

A user with rights for one topic and one group sends, receives, fails until messages are dead letters, begins
transactions and takes a delayed message back. A wrong secret, an unknown user, no keys, a topic and a group
without rights are refused; the broker counts each, with its reason, and no error shows the secret.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from tests.interop.grpc_clients import LIMIT_S, Client, Line, difference, fault, slug
from tests.interop.grpc_running import cluster

from orbitmq import Credentials
from orbitmq.admin import Admin

ROOT = Credentials("root", "secret-of-root")
APP, SECRET = "app", "secret-of-app"
# Names that APP may use begin so.
OPEN = "open"
CLOSED = "closed"
RECEIVING = ("push", "simple")
SETTINGS = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": '{"username":"root","password":"secret-of-root"}',
    "recallMessageEnable": "true",
}


async def _prepare(name_server: str) -> None:
    async with Admin(name_server, credentials=ROOT) as admin:
        await admin.access.create_user(APP, SECRET)
        await admin.access.set_rule(APP, f"Topic:{OPEN}*", ["Pub", "Sub"])
        await admin.access.set_rule(APP, f"Group:{OPEN}*", ["Sub"])
        await admin.topics.create(CLOSED, queues=1)


def keys(client: Client, user: str, secret: str) -> Client:
    """The client with these keys."""
    command = ["env", f"ACCESS_KEY={user}", f"SECRET_KEY={secret}", *client.command]
    return Client(client.name, command, client.page_command)


def refused(client: Client, endpoint: str, role: str, topic: str, group: str) -> str:
    """What is wrong with how a client is refused; empty: it ends in an error, and shows no secret."""
    done = subprocess.run(
        [*client.command, role, endpoint, topic, group, "1"],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    said = done.stdout + done.stderr
    if done.returncode == 0:
        return f"{role} {topic} is not refused: {said[-500:]}"
    return f"{role} {topic} shows the secret" if SECRET in said else ""


def _works(client: Client, endpoint: str, count: int) -> str:
    """What is wrong with a user who has rights; empty: nothing."""
    topic = f"{OPEN}-{slug(client.name)}"
    client.run("send", endpoint, topic, "-", count)
    found = [fault(client.run(role, endpoint, topic, f"{topic}-{role}", count), count) for role in RECEIVING]
    of_transactions = f"{topic}-transactions"
    lines = client.run("transact", endpoint, of_transactions, "-", 4)
    if [line["asked"] for line in lines if "asked" in line] != ["asked about"]:
        found.append(f"asked about others: {lines}")
    received = client.run("simple", endpoint, of_transactions, f"{topic}-group", 2)
    found.append(difference(received, {"committed", "asked about"}))
    if not any(line.get("recalled") for line in client.run("recall", endpoint, f"{topic}-delayed", "-", 2)):
        found.append("nothing is recalled")
    return ", ".join(filter(None, found))


def _refusals(client: Client, told: Line) -> str:
    """What is wrong with refusals; empty: nothing."""
    topic, group = f"{OPEN}-{slug(client.name)}", f"{OPEN}-refused"
    known = keys(client, APP, SECRET)
    wrong, unknown = keys(client, APP, f"not-{SECRET}"), keys(client, f"nobody-{slug(client.name)}", SECRET)
    tries = (
        (wrong, "send", topic, "-"),
        (wrong, "simple", topic, group),
        (unknown, "send", topic, "-"),
        (client, "simple", topic, group),
        (known, "send", CLOSED, "-"),
        (known, "simple", CLOSED, group),
        (known, "simple", topic, CLOSED),
    )
    found = [refused(each, told["grpc"], *rest) for each, *rest in tries]
    wanted = {
        (APP, "wrong keys", ""),
        (f"nobody-{slug(client.name)}", "wrong keys", ""),
        ("", "no keys", ""),
        (APP, "no right", f"Topic:{CLOSED}"),
        (APP, "no right", f"Group:{CLOSED}"),
    }
    if missing := wanted - asyncio.run(_counted(told["name_server"])):
        found.append(f"the broker does not count {sorted(missing)}")
    return ", ".join(filter(None, found))


async def _counted(name_server: str) -> set[tuple[str, str, str]]:
    """Whom the broker refused, why, and for what."""
    async with Admin(name_server, credentials=ROOT) as admin:
        return {(each.user, each.why, each.resource) for each in (await admin.access.refusals()).whole()}


def cells(clients: Sequence[Client], folder: Path, count: int) -> Iterator[tuple[str, Callable[[], str]]]:
    """Each cell by its name: a function that gives its fault. They wait, so they run together."""
    words = [word for name, value in SETTINGS.items() for word in ("--set", f"{name}={value}")]
    with (
        cluster(folder / "secured", "--brokers", "1", *words) as told,
        ThreadPoolExecutor(2 * len(clients)) as pool,
    ):
        asyncio.run(_prepare(told["name_server"]))
        runs = [
            run
            for client in clients
            for run in (
                (
                    f"{client.name}: with keys and rights",
                    partial(_works, keys(client, APP, SECRET), told["grpc"], count),
                ),
                (f"{client.name}: without keys or rights", partial(_refusals, client, told)),
            )
        ]
        for name, started in [(name, pool.submit(run)) for name, run in runs]:
            yield name, started.result
