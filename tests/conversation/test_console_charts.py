"""Charts of the console: their contents, and the only pages with a script."""

from __future__ import annotations

import re

import pytest
from tests.conversation.console_browser import opened, sent
from tests.conversation.test_console import EVERY, filled

from orbitmq import BrokerError, ConsumeFrom, Message
from orbitmq.admin import LeftOut, Partial, TopicLag
from orbitmq.console.charts import topic_rates
from orbitmq.console.history import MOST_LINES, MOST_POINTS, MOST_SERIES, History, Series
from orbitmq.testing import World


@pytest.mark.behaviour("CS-35")
def test_a_series_keeps_ten_minutes_of_the_largest_rates() -> None:
    series = Series()
    assert (series.lines(0).times, series.lines(0).lines) == ([], {})
    for second in range(0, 3600, 2):
        series.note(second * 1000, {f"t{number}": float(number) for number in range(20)})
    found = series.lines(3600_000)
    assert MOST_POINTS - 21 <= len(found.times) <= MOST_POINTS
    assert found.times[0] >= 3000
    assert sorted(found.lines) == sorted(f"t{number}" for number in range(20 - MOST_LINES, 20))
    assert all(len(line) == len(found.times) for line in found.lines.values())


@pytest.mark.behaviour("CS-35")
def test_a_time_in_which_nobody_looked_is_a_gap() -> None:
    series = Series()
    series.note(0, {"a": 1.0})
    series.note(100_000, {"a": 2.0, "b": 3.0})
    found = series.lines(100_000)
    assert found.times == [0, 5, 100]
    assert found.lines == {"a": [1.0, None, 2.0], "b": [None, None, 3.0]}


@pytest.mark.behaviour("CS-35")
def test_rates_of_topics_are_those_between_two_looks() -> None:
    history = History()
    assert history.note_ends(0, {"t": 10}) == {}
    assert history.note_ends(1_000, {"t": 99}) == {}
    assert history.note_ends(10_000, {"t": 60, "new": 5}) == {"t": 5.0}
    assert history.note_ends(20_000, {"t": 20, "new": 25}) == {"t": 0.0, "new": 2.0}
    # After a long gap, the time in between gets no rate.
    assert history.note_ends(200_000, {"t": 9_999}) == {}


@pytest.mark.behaviour("CS-46")
def test_the_rate_of_one_topic_is_that_since_the_look_before() -> None:
    history = History()
    assert history.note_topic(1_000_000, "t", 10) is None
    assert history.note_topic(1_001_000, "t", 99) is None
    assert history.note_topic(1_010_000, "t", 60) == 5.0
    assert history.note_topic(1_012_000, "t", 99) == 5.0
    assert history.note_topic(1_020_000, "t", 10) == 0.0
    assert history.note_topic(2_000_000, "t", 99) is None
    for number in range(MOST_SERIES):
        history.note_topic(2_000_000, str(number), 1)
    assert history.note_topic(2_010_000, "t", 100) is None


@pytest.mark.behaviour("CS-46")
async def test_the_page_of_a_topic_has_its_rate_and_the_time_it_keeps(orbitmq_world: World) -> None:
    world = orbitmq_world
    await sent(world, "t", b"1", queues=1)
    async with world.producer() as producer, opened(world) as browser:
        assert (await browser.json("/topics/t"))["facts"]["in_rate"] is None
        await world.sleep(10)
        for _ in range(20):
            await producer.send(Message("t", b"2"))
        page = await browser.json("/topics/t")
        assert page["facts"]["in_rate"] == pytest.approx(2, rel=0.1)
        assert page["facts"]["kept"] == page["queues"][0]["kept"] == pytest.approx(10, rel=0.1)


@pytest.mark.behaviour("CS-46")
async def test_the_list_of_topics_has_rates_and_groups_and_no_rate_while_a_broker_is_away(
    orbitmq_world: World,
) -> None:
    world = orbitmq_world
    await sent(world, "t", b"1", queues=1)
    async with world.producer() as producer, opened(world) as browser:
        async with world.consumer("g") as consumer:
            consumer.subscribe("t")
            await world.sleep(10)
        (row,) = (await browser.json("/topics"))["topics"]
        assert (row["groups"], row["in_rate"]) == (1, None)
        for _ in range(20):
            await producer.send(Message("t", b"2"))
        await world.sleep(10)
        (row,) = (await browser.json("/topics"))["topics"]
        assert row["in_rate"] == pytest.approx(2, rel=0.1)
        assert "In /s" in await browser.text("/topics")
    lags = [TopicLag("g", "t", "broker-a", 0, 100)]
    history = History()
    assert topic_rates(Partial(lags), history, 0) == {}
    assert (
        topic_rates(
            Partial((), (LeftOut("broker-a", "", "away", BrokerError(1, "away", "")),)), history, 10_000
        )
        == {}
    )
    assert topic_rates(Partial(lags), history, 20_000) == {"t": 0.0}


@pytest.mark.behaviour("CS-35")
async def test_the_charts_have_the_rates_of_brokers_and_topics(orbitmq_world: World) -> None:
    world = orbitmq_world
    await sent(world, "t", b"1")
    async with world.producer() as producer, opened(world) as browser:
        async with world.consumer("g", consume_from=ConsumeFrom.FIRST) as consumer:
            consumer.subscribe("t")
            await world.sleep(10)
        before = (await browser.json("/charts"))["came_by_broker"]
        assert len(before["times"]) == 1
        for number in range(50):
            await producer.send(Message("t", b"%d" % number))
        await world.sleep(10)
        await browser.text("/")
        await world.sleep(10)
        found = await browser.json("/charts")
        # The overview adds a sample, too.
        assert len(found["came_by_broker"]["times"]) == 3
        assert list(found["gone_by_broker"]["lines"]) == list(found["came_by_broker"]["lines"])
        [line] = found["came_by_topic"]["lines"].values()
        assert line == pytest.approx([50 / 20], rel=0.1)
        assert [one["topic"] for one in found["rates"]] == ["t"]
        assert "In, by topic" in await browser.text("/charts")


@pytest.mark.behaviour("CS-36")
async def test_only_the_charts_have_scripts_and_none_is_in_the_page(orbitmq_world: World) -> None:
    await filled(orbitmq_world)
    async with opened(orbitmq_world, write=True) as browser:
        answer = await browser.get("/charts")
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; style-src 'self'")
        assert policy.endswith("; script-src 'self'; connect-src 'self'")
        assert "unsafe" not in policy
        scripts = re.findall(r"<script[^>]*>[^<]*</script>", answer.text)
        assert scripts == [
            f'<script src="/static/{name}" defer></script>'
            for name in ("uplot/uPlot.iife.min.js", "charts.js")
        ]
        assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:", answer.text)
        for name in ("uplot/uPlot.iife.min.js", "uplot/uPlot.min.css", "uplot/LICENSE", "charts.js"):
            assert (await browser.get(f"/static/{name}")).status_code == 200
        for path in EVERY:
            policy = (await browser.get(path)).headers["content-security-policy"]
            assert "script-src" not in policy
