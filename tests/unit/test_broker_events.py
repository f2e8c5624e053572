"""The broker's event bus: which listener receives which event, and the one rule for a failing listener."""

from __future__ import annotations

import logging

import pytest

from orbitmq.broker.events import Events, OffsetsReset, TableSaved


def test_an_event_reaches_the_listeners_of_its_class_in_their_order() -> None:
    events = Events()
    heard: list[str] = []
    events.subscribe(TableSaved, lambda event: heard.append(f"one {event.table}"))
    events.subscribe(TableSaved, lambda event: heard.append(f"two {event.table}"))
    events.subscribe(OffsetsReset, lambda event: heard.append(event.group))
    events.publish(TableSaved("topics"))
    assert heard == ["one topics", "two topics"]


def test_an_event_that_nobody_waits_for_is_no_error() -> None:
    Events().publish(TableSaved("topics"))


def test_after_a_failure_the_others_hear_and_the_publisher_gets_the_first(
    caplog: pytest.LogCaptureFixture,
) -> None:
    events = Events()
    heard: list[str] = []

    def fails(text: str) -> None:
        raise OSError(text)

    events.subscribe(TableSaved, lambda _event: fails("the first"))
    events.subscribe(TableSaved, lambda event: heard.append(event.table))
    events.subscribe(TableSaved, lambda _event: fails("the second"))
    with caplog.at_level(logging.ERROR), pytest.raises(OSError, match="the first"):
        events.publish(TableSaved("topics"))
    assert heard == ["topics"]
    assert "the second" in caplog.text


def test_a_listener_that_subscribes_while_it_hears_is_not_called_for_that_event() -> None:
    events = Events()
    heard: list[str] = []
    events.subscribe(
        TableSaved, lambda _event: events.subscribe(TableSaved, lambda event: heard.append(event.table))
    )
    events.publish(TableSaved("one"))
    assert heard == []
    events.publish(TableSaved("two"))
    assert heard == ["two"]


@pytest.mark.parametrize("special_first", [True, False])
def test_arrivals_reach_those_of_all_topics_and_those_of_one(special_first: bool) -> None:
    events = Events()
    everything: list[tuple[str, int, int]] = []
    special: list[tuple[str, int, int]] = []
    if special_first:
        events.on_messages_arrived(lambda *what: special.append(what), topic="S")
    events.on_messages_arrived(lambda *what: everything.append(what))
    if not special_first:
        events.on_messages_arrived(lambda *what: special.append(what), topic="S")
    events.messages_arrived("T", 0, 5)
    events.messages_arrived("S", 1, 7)
    assert everything == [("T", 0, 5), ("S", 1, 7)]
    assert special == [("S", 1, 7)]
