"""The trace of a message in the console: a timeline of its events, and the same as a table."""

from __future__ import annotations

import asyncio
import re
from datetime import datetime, timedelta

import pytest
from tests.conversation.console_browser import opened

from orbitmq import ConsumeFrom, Message, ReceivedMessage
from orbitmq.admin import TraceStep
from orbitmq.console.timeline import Timeline, brief_text
from orbitmq.console.traces import rows_of
from orbitmq.durations import instant
from orbitmq.testing import World

BEGIN = instant(1_700_000_000_000)


def step(
    kind: str, group: str, at_s: float | None, took: float | None, result: str, before: int = 0
) -> TraceStep:
    at = None if at_s is None else BEGIN + timedelta(seconds=at_s)
    return TraceStep(kind, at, group, "10.0.0.1", result, took, redeliveries=before)  # type: ignore[arg-type]


@pytest.mark.behaviour("CS-44")
def test_a_delivery_was_waited_for_since_the_one_before_it() -> None:
    steps = [
        step("send", "shop", 0, 0.5, "success"),
        step("delivery", "a", 1, 1, "exception"),
        step("delivery", "b", 3, None, "unknown"),
        step("delivery", "a", 12, 1, "success", before=1),
    ]
    rows = rows_of(steps, None)
    assert [(row["group"], row["after"], row["waited"]) for row in rows] == [
        ("shop", 0, None),
        ("a", 1, 0.5),
        ("a", 12, 10),
        ("b", 3, 2.5),
    ]
    line = Timeline("timeline", rows)
    assert line.span == 13
    assert [(bar.begin, bar.width, bar.wait) for bar in line.bars] == [
        (0, 3.85, None),
        (7.69, 7.69, 3.85),
        (92.31, 7.69, 15.38),
        (23.08, 0, 3.85),
    ]
    assert [text for _, text in line.marks] == ["0 ms", "5.0 s", "10 s"]


@pytest.mark.behaviour("CS-44")
def test_steps_without_a_time_or_a_length_have_a_place_too() -> None:
    for steps in ([], [step("send", "shop", None, None, "failure")], [step("send", "shop", 0, 0, "success")]):
        line = Timeline("timeline", rows_of(steps, None))
        assert len(line.bars) == len(steps)
        assert all(bar.begin in (0, None) and not bar.width for bar in line.bars)
        assert line.marks[0] == (0, "0 ms")
    assert [brief_text(each) for each in (None, 0.0123, -0.5, -20.0, 1.0, 200.0)] == [
        "",
        "12 ms",
        "-500 ms",
        "-20,000 ms",
        "1.0 s",
        "3 min 20 s",
    ]


@pytest.mark.orbitmq(settings={"traceTopicEnable": "true"})
@pytest.mark.behaviour("CS-44")
async def test_a_trace_shows_when_a_message_was_sent_stored_delivered_and_consumed(
    orbitmq_world: World,
) -> None:
    world = orbitmq_world
    async with world.admin() as admin:
        await admin.topics.create("t", queues=1)
    async with world.producer("shop", trace=True) as producer:
        message_id = (await producer.send(Message("t", b"<script>"))).message_id
    failed, done = False, asyncio.Event()

    async def handle(message: ReceivedMessage) -> None:
        nonlocal failed
        await world.sleep(0.25)
        if not failed:
            failed = True
            raise RuntimeError("not yet")
        done.set()

    async with opened(world) as browser:
        await world.sleep(2)
        assert "No consumer has recorded" in await browser.text(f"/traces/{message_id}")
        async with world.consumer("billing", trace=True, consume_from=ConsumeFrom.FIRST) as consumer:
            consumer.subscribe("t")
            running = asyncio.create_task(consumer.run(handle))
            await done.wait()
            await consumer.close()
            await running
        await world.sleep(3)
        page = await browser.json(f"/traces/{message_id}")
        assert [(one["kind"], one["group"], one["result"]) for one in page["steps"]] == [
            ("send", "shop", "success"),
            ("stored", "", ""),
            ("delivery", "billing", "exception"),
            ("delivery", "billing", "success"),
        ]
        send, stored, first, second = page["steps"]
        assert send["after"] == 0
        assert stored["client"] == "broker-a:0"
        assert 0 <= stored["after"] < 1
        assert [one["took"] for one in (first, second)] == [0.25, 0.25]
        done = datetime.fromisoformat(second["done"]) - datetime.fromisoformat(second["at"])
        assert done == timedelta(seconds=0.25)
        assert first["after"] == pytest.approx(stored["after"] + first["waited"])
        assert second["after"] == pytest.approx(first["after"] + first["took"] + second["waited"], abs=0.01)
        assert page["sentence"].startswith("The group that got it consumed it, and was done ")
        text = await browser.text("/traces", id=message_id)
        assert len(re.findall(r'<(?:rect|circle) class="step"', text)) == 4
        assert 'href="/groups/billing"' in text
        assert "delivery 2" in text
        assert "took 250 ms" in text
        assert not re.search(r"<script|\sstyle=", text)
        assert "第 2 次投递" in await browser.text("/traces", id=message_id, lang="zh")
        table = await browser.get(f"/traces/{message_id}", csv="steps")
        assert len(table.text.splitlines()) == 5
        assert f'href="/messages/{message_id}?topic=t"' in text
        unknown = await browser.get("/traces/00AA")
        assert (unknown.status_code, "no trace of message 00AA" in unknown.text) == (400, True)
