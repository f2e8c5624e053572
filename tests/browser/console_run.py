"""`make test-console`: the console's pages in Debian's Chromium, driven by playwright.

Each page is opened light and dark, wide and 400 px wide: without an error of the browser, a request
elsewhere, a violation of the policy, scrolling sideways, or a serious finding of axe. Then what an operator
does: a reset and its undo, dead letters sent again, a topic deleted, messages followed, all by keyboard.
Without Chromium it prints one line and succeeds; where ``ORBITMQ_CI`` is set, that fails. With ``--apache``
the pages are looked at over Apache RocketMQ, too. With ``--screenshots FOLDER`` it writes the pictures of
docs/console.md.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from axe_playwright_python.sync_playwright import Axe
from benchmarks.servers import Apache, apache_classpath, child_settings
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, expect, sync_playwright

from orbitmq import ConsumeFrom, Consumer, Message, Producer, ReceivedMessage
from orbitmq.admin import Admin
from orbitmq.message.reserved import dead_letter_topic
from orbitmq.runtime.ports import free_ports

LIMIT_S = 60.0
SERIOUS = ("serious", "critical")
PAGES = {
    "all clusters": "/clusters",
    "overview": "/",
    "charts": "/charts",
    "charts of another cluster": "/@second/charts",
    "topics": "/topics",
    "a topic": "/topics/orders",
    "a new topic": "/topics/~new",
    "a topic edited": "/topics/orders/edit",
    "topics deleted": "/topics/~delete?chosen=orders&chosen=ledger",
    "a message to send": "/topics/orders/send",
    "groups": "/groups",
    "a group": "/groups/billing",
    "a group edited": "/groups/billing/edit",
    "a group deleted": "/groups/billing/delete",
    "a reset": "/groups/billing/reset",
    "a reset shown": "/groups/billing/reset?topic=orders&to=last",
    "offsets to give": "/groups/billing/clone",
    "offsets to give shown": "/groups/billing/clone?target=stock",
    "messages": "/messages",
    "messages of a topic": "/messages?topic=orders",
    "messages by key": "/messages?topic=orders&key=order-7",
    "nasty messages": "/messages?topic=ledger",
    "dead letters": "/dead-letters",
    "dead letters of a group": "/dead-letters/audit",
    "dead letters chosen": "/dead-letters/audit/again?chosen=broker-a:0",
    "brokers": "/brokers",
    "clients": "/clients",
    "timers": "/timers",
    "traces": "/traces",
    "users and rules": "/access",
    "a right": "/access/~test?user=app",
    "audit log": "/audit",
    "another cluster": "/@second/",
    "a topic of another cluster": "/@second/topics/theirs",
    "in Chinese": "/?lang=zh",
    "in English": "/?lang=en",
}
# Pages that only a console of several clusters has.
OF_SEVERAL = frozenset(name for name, path in PAGES.items() if path == "/clusters" or path.startswith("/@"))
LOOKS = [(width, scheme) for width in (1100, 400) for scheme in ("light", "dark")]
# A queue of which the group has read nothing yet has no offset to move.
MOVED = re.compile("Group billing was moved in [1-8] queues?.")
PICTURES = {
    "console-overview.png": "/",
    "console-group.png": "/groups/billing",
}


@contextmanager
def running(*words: str) -> Iterator[dict[str, Any]]:
    """A process of ``orbitmq`` whose first line is JSON."""
    command = [sys.executable, "-m", "orbitmq", *words, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, preexec_fn=child_settings) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())
        finally:
            process.terminate()


@contextmanager
def apache(root: Path) -> Iterator[str]:
    """A broker and a name server of Apache RocketMQ, from Maven Central; the address of the name server."""
    made = Apache(apache_classpath(), heap_mb=512)
    for name in ("name-server", "broker"):
        (root / name).mkdir(parents=True)
    with ExitStack() as stack:
        name_server = made.name_server(root / "name-server")
        stack.callback(name_server.stop)
        broker = made.broker(root / "broker", name_server.address, traceTopicEnable="true")
        stack.callback(broker.stop)
        asyncio.run(registered(name_server.address))
        yield name_server.address


async def registered(name_servers: str) -> None:
    """Wait until the name server knows a broker."""
    end = time.monotonic() + LIMIT_S
    async with Admin(name_servers) as admin:
        while not await admin.brokers.list():
            assert time.monotonic() < end, "no broker is registered"
            await asyncio.sleep(0.2)


async def fill(name_servers: str) -> dict[str, str]:
    """Topics, a group that lags, dead letters, a message that waits, bodies that are no text, and a trace.
    Returns the pages of single things.
    """
    async with Admin(name_servers) as admin:
        for topic, queues in (("orders", 4), ("ledger", 1), ("gone", 2), ("later", 2), ("seen", 1)):
            await admin.topics.create(topic, queues=queues)
        broker = (await admin.brokers.list())[0].address
    async with Producer("shop", name_servers=name_servers, trace=True) as producer:
        seen = (await producer.send(Message("seen", b'{"order": 1}', keys="seen"))).message_id
        for number in range(300):
            body = json.dumps({"order": number, "price": number % 90, "region": "eu"})
            await producer.send(
                Message("orders", body, tags="paid" if number % 3 else "new", keys=f"order-{number}")
            )
        for number in range(20):
            body = b"<script>alert(1)</script><p hx-get='/' onclick='x'>\xff\xfe" + bytes([number])
            await producer.send(Message("ledger", body))
        await producer.send(Message("later", "tea", delay=3000))
    await consume(name_servers, "billing", "orders", 80, reject=False)
    await consume(name_servers, "audit", "ledger", 20, reject=True)
    async with Admin(name_servers) as admin:
        end = time.monotonic() + LIMIT_S
        while dead_letter_topic("audit") not in await admin.topics.list():
            assert time.monotonic() < end, "no dead letters came"
            await asyncio.sleep(0.2)
        for group, failures in (("billing", 0), ("stock", 1)):
            await handle_seen(name_servers, group, failures)
        while len((await admin.messages.trace(seen)).found) < 4:
            assert time.monotonic() < end, "no trace came"
            await asyncio.sleep(0.2)
    return {
        "a trace": f"/traces/{seen}?topic=seen",
        "a message": f"/messages/{seen}?topic=seen",
        "a broker": f"/brokers/{broker}",
        "a broker to drain": f"/brokers/{broker}/drain",
        "a setting": f"/brokers/{broker}?key=maxMsgsNumBatch",
        "a dangerous setting": f"/brokers/{broker}?key=fileReservedTime",
        "a setting that needs a restart": f"/brokers/{broker}?key=listenPort",
    }


async def handle_seen(name_servers: str, group: str, failures: int) -> None:
    """Consume the traced message, after so many failures."""
    done = asyncio.Event()
    left = iter(range(failures))

    async def handle(message: ReceivedMessage) -> None:
        await asyncio.sleep(0.3)
        if next(left, None) is None:
            done.set()
        else:
            message.retry()

    async with Consumer(
        group, name_servers=name_servers, trace=True, consume_from=ConsumeFrom.FIRST
    ) as consumer:
        consumer.subscribe("seen")
        running = asyncio.ensure_future(consumer.run(handle))
        await asyncio.wait_for(done.wait(), LIMIT_S)
        await consumer.close()
        await running


async def fill_other(name_servers: str) -> None:
    """A second cluster, with a topic that the first one does not have."""
    async with Admin(name_servers) as admin:
        await admin.topics.create("theirs", queues=1)


async def consume(name_servers: str, group: str, topic: str, count: int, *, reject: bool) -> None:
    async with Consumer(group, name_servers=name_servers, consume_from=ConsumeFrom.FIRST) as consumer:
        consumer.subscribe(topic)
        async for message in consumer.messages(auto_ack=False):
            if reject:
                message.reject()
            else:
                message.ack()
            count -= 1
            if not count:
                return


class Watch:
    """Notes what a page must not do: errors, and requests to another host."""

    def __init__(self, page: Page, base: str) -> None:
        self.found: list[str] = []
        self._base = base
        page.on("console", self._told)
        page.on("pageerror", lambda error: self.found.append(f"error: {error}"))
        page.on("request", self._asked)
        page.on("dialog", lambda dialog: self.found.append(f"dialog: {dialog.message}"))

    def _told(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.found.append(f"{message.type}: {message.text}")

    def _asked(self, request: Request) -> None:
        if urlsplit(request.url).netloc != urlsplit(self._base).netloc:
            self.found.append(f"a request elsewhere: {request.url}")


def look(
    browser: Browser, base: str, state: Any, pages: Mapping[str, str], width: int, scheme: str
) -> list[str]:
    """What is wrong with the pages at that width and colour scheme."""
    wrong: list[str] = []
    context = browser.new_context(
        storage_state=state,
        viewport={"width": width, "height": 800},
        color_scheme="dark" if scheme == "dark" else "light",
    )
    page = context.new_page()
    watch = Watch(page, base)
    # axe brings a script of its own, which the policy of the pages forbids.
    judged = browser.new_context(
        storage_state=state, bypass_csp=True, color_scheme="dark" if scheme == "dark" else "light"
    ).new_page()
    for name, path in pages.items():
        answer = page.goto(base + path)
        if answer is None or answer.status != 200:
            # On a busy machine a server may answer too late for the page's deadline, once.
            page.wait_for_timeout(2000)
            watch.found.clear()
            answer = page.goto(base + path)
        if answer is None or answer.status != 200:
            wrong.append(f"{name}: {answer and answer.status}")
        if page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"):
            wrong.append(f"{name}, {width} px: it scrolls sideways")
        wrong += [f"{name}: {one}" for one in watch.found]
        watch.found.clear()
        judged.goto(base + path)
        for finding in Axe().run(judged).response["violations"]:
            if finding["impact"] in SERIOUS:
                places = [node["html"][:90] for node in finding["nodes"][:2]]
                wrong.append(f"{name}, {scheme}: {finding['id']}: {places}")
    context.close()
    return wrong


def press(page: Page, text: str) -> None:
    """Go to the button or link of that text by the keyboard, and press it."""
    for _ in range(200):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent.trim()") == text:
            with page.expect_navigation():
                page.keyboard.press("Enter")
            return
    raise AssertionError(f"the keyboard does not reach {text!r}")


def open_menu(page: Page) -> None:
    """Open the menu of the clusters by the keyboard."""
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.tagName") == "SUMMARY":
            page.keyboard.press("Enter")
            return
    raise AssertionError("the keyboard does not reach the menu of the clusters")


def charts(page: Page, base: str, name_servers: str) -> None:
    """The charts are drawn, and go on by themselves."""
    page.goto(f"{base}/charts")
    expect(page.locator(".chart canvas").first).to_be_visible()
    points = "JSON.stringify([...document.querySelectorAll('.chart')].map((one) => one.plot.data[0].length))"
    before = json.loads(page.evaluate(points))
    bench = ["bench", "orders", "--messages", "200", "--no-receive", "-n", name_servers]
    subprocess.run([sys.executable, "-m", "orbitmq", *bench], check=True, stdout=subprocess.DEVNULL)
    for at, number in enumerate(before):
        end = time.monotonic() + LIMIT_S
        # Not wait_for_function: it runs a text as a script in the page, which the policy forbids.
        while json.loads(page.evaluate(points))[at] <= number:
            assert time.monotonic() < end, f"chart {at} does not go on"
            page.wait_for_timeout(200)
    expect(page.locator(".u-legend").last).to_contain_text("orders")


def drained(page: Page, base: str, path: str) -> None:
    """A broker is drained, the page waits by itself until nothing came, and the drain is undone."""
    said = page.get_by_role("status")
    page.goto(base + path)
    page.get_by_label(re.compile("Type “.*” to confirm")).fill("broker-a")
    page.keyboard.press("Enter")
    expect(said).to_contain_text("The write permission of broker-a is taken")
    expect(page.get_by_text("No messages arrive at broker-a any more")).to_be_visible(timeout=LIMIT_S * 1000)
    press(page, "Give the write permission back")
    expect(said).to_contain_text("The write permission of broker-a is given back")


def work(browser: Browser, base: str, state: Any, name_servers: str, to_drain: str) -> None:
    """What an operator does, by keyboard. ``to_drain``: the page that drains a broker."""
    context = browser.new_context(storage_state=state)
    page = context.new_page()
    watch = Watch(page, base)
    said = page.get_by_role("status")

    page.goto(f"{base}/groups/billing")
    sentence = page.get_by_text(re.compile("billing is [0-9,]+ behind")).inner_text()
    behind = sentence.partition(" behind")[0]
    press(page, "Move offsets")
    press(page, "Preview")
    page.get_by_label("Type “billing” to confirm").fill("billing")
    press(page, "Move the group")
    expect(said).to_have_text(MOVED)
    expect(page.get_by_text("billing is not behind")).to_be_visible()
    undo = page.get_by_role("link", name="Undo the move of")
    press(page, undo.inner_text())
    page.get_by_label("Type “billing” to confirm").fill("billing")
    press(page, "Move the group")
    expect(said).to_have_text(MOVED)
    expect(page.get_by_text(behind)).to_be_visible()

    page.goto(f"{base}/dead-letters/audit")
    press(page, "Send again")
    expect(page.get_by_text("All dead letters of audit are sent again, not chosen ones.")).to_be_visible()
    page.get_by_label("Type “audit” to confirm").fill("audit")
    page.keyboard.press("Enter")
    expect(said).to_contain_text("The dead letters of audit are being sent again")
    # The page loads itself again until the job is done.
    expect(page.locator(".state", has_text="done").first).to_be_visible(timeout=LIMIT_S * 1000)

    page.goto(f"{base}/topics/~delete?chosen=gone")
    page.get_by_label("Type “gone” to confirm").fill("gone")
    page.keyboard.press("Enter")
    expect(said).to_contain_text("Deleted: gone.")

    charts(page, base, name_servers)
    drained(page, base, to_drain)

    page.goto(f"{base}/topics")
    expect(page.get_by_role("link", name="orders")).to_be_visible()
    open_menu(page)
    press(page, "second")
    expect(page.get_by_role("link", name="theirs")).to_be_visible()
    expect(page.get_by_role("link", name="orders")).to_have_count(0)
    press(page, "theirs")
    expect(page).to_have_url(f"{base}/@second/topics/theirs")

    page.goto(f"{base}/messages?topic=orders")
    press(page, "Follow live")

    words = ["send", "orders", "a body that is new", "-n", name_servers]
    subprocess.run([sys.executable, "-m", "orbitmq", *words], check=True, stdout=subprocess.DEVNULL)
    expect(page.get_by_text("a body that is new")).to_be_visible(timeout=LIMIT_S * 1000)
    assert not watch.found, watch.found
    context.close()


def look_at_apache(browser: Browser, name_servers: str, single: Mapping[str, str]) -> list[str]:
    """What is wrong with the pages over Apache RocketMQ."""
    port = str(free_ports(1)[0])
    pages = {name: path for name, path in {**PAGES, **single}.items() if name not in OF_SEVERAL}
    wrong: list[str] = []
    with running("console", "--write", "--port", port, "-n", name_servers) as console:
        first = browser.new_context()
        first.new_page().goto(console["link"])
        for width, scheme in ((1100, "light"), (400, "dark")):
            wrong += look(browser, f"http://127.0.0.1:{port}", first.storage_state(), pages, width, scheme)
    return [f"at Apache: {one}" for one in wrong]


def narrow_menu(browser: Browser, base: str, state: Any) -> None:
    """On a phone the menu is behind a button, and nothing scrolls sideways: by keyboard, and by touch."""
    context = browser.new_context(storage_state=state, viewport={"width": 400, "height": 800})
    page = context.new_page()
    watch = Watch(page, base)
    page.goto(f"{base}/topics")
    menu = page.get_by_role("navigation")
    expect(menu).to_be_hidden()
    page.get_by_role("button", name="Pages").focus()
    page.keyboard.press("Enter")
    expect(menu).to_be_visible()
    page.keyboard.press("Escape")
    expect(menu).to_be_hidden()
    page.keyboard.press("Enter")
    press(page, "Groups")
    expect(page).to_have_url(f"{base}/groups")
    page.get_by_role("button", name="Pages").click()
    menu.get_by_role("link", name="Timers").click()
    expect(page).to_have_url(f"{base}/timers")
    assert not watch.found, watch.found
    context.close()


def pictures(browser: Browser, base: str, state: Any, wanted: Mapping[str, str], folder: Path) -> None:
    """The pictures of the documentation."""
    page = browser.new_context(storage_state=state, viewport={"width": 1100, "height": 720}).new_page()
    for name, path in wanted.items():
        page.goto(base + path)
        page.screenshot(path=folder / name)


def main(arguments: list[str]) -> int:
    chromium = shutil.which("chromium")
    if chromium is None:
        print("test-console: left out, there is no chromium (Debian: apt-get install chromium)")
        return 1 if os.environ.get("ORBITMQ_CI") else 0
    folder = Path(arguments[arguments.index("--screenshots") + 1]) if "--screenshots" in arguments else None
    port = str(free_ports(1)[0])
    with (
        tempfile.TemporaryDirectory() as root,
        ExitStack() as stack,
        running("up", "--port", "0", "--dir", f"{root}/1", "--set", "traceTopicEnable=true") as cluster,
        running("up", "--port", "0", "--dir", f"{root}/2", "--brokers", "1") as other,
    ):
        name_servers = cluster["name_server"]
        pages = {**PAGES, **asyncio.run(fill(name_servers))}
        asyncio.run(fill_other(other["name_server"]))
        peer, pages_of_peer = "", dict[str, str]()
        if "--apache" in arguments:
            peer = stack.enter_context(apache(Path(root, "apache")))
            pages_of_peer = asyncio.run(fill(peer))
        os.environ["XDG_CONFIG_HOME"] = f"{root}/config"
        for name, servers in (("first", name_servers), ("second", other["name_server"])):
            words = ["context", "create", name, "-n", servers]
            subprocess.run([sys.executable, "-m", "orbitmq", *words], check=True, stdout=subprocess.DEVNULL)
        with (
            running("console", "--write", "--port", port, "--all-contexts") as console,
            sync_playwright() as tool,
        ):
            base = f"http://127.0.0.1:{port}"
            browser = tool.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            first = browser.new_context()
            first.new_page().goto(console["link"])
            state = first.storage_state()
            if folder is not None:
                pictures(browser, base, state, {**PICTURES, "console-trace.png": pages["a trace"]}, folder)
            looks = LOOKS[:1] if "--short" in arguments else LOOKS
            wrong = [
                one for width, scheme in looks for one in look(browser, base, state, pages, width, scheme)
            ]
            if peer:
                wrong += look_at_apache(browser, peer, pages_of_peer)
            for one in wrong:
                print(f"test-console: {one}")
            work(browser, base, state, name_servers, pages["a broker to drain"])
            narrow_menu(browser, base, state)
            browser.close()
    where = ", and at Apache RocketMQ" if peer else ""
    print(f"test-console: {len(pages)} pages in {len(looks)} looks{where}, {len(wrong)} findings")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
