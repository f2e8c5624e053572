"""The contents of message trace records, including those of all versions of Java's client."""

from __future__ import annotations

from orbitmq.client.observe.trace_records import FIELD, RECORD
from orbitmq.client.observe.trace_steps import TraceStep, steps
from orbitmq.durations import instant

ID = "7F000001AAAA"


def record(*fields: object) -> str:
    return FIELD.join(map(str, fields)) + RECORD


def pub(*end: object, message_id: str = ID, cost_ms: object = 3) -> str:
    common = ("Pub", 1000, "DefaultRegion", "pg", "orders", message_id, "null", "k", "1.2.3.4:10911", 5)
    return record(*common, cost_ms, 0, *end)


def of(*texts: str, client: str = "9.9.9.9:5") -> list[TraceStep]:
    return steps([(text, client) for text in texts], ID)


def test_a_send_is_read_in_each_length_that_clients_have_written() -> None:
    sent = TraceStep(
        "send",
        instant(1000),
        "pg",
        "9.9.9.9:5",
        "success",
        0.003,
        topic="orders",
        broker_address="1.2.3.4:10911",
    )
    assert of(pub("true")) == of(pub("OFFSETID", "true")) == of(pub("OFFSETID", "true", "host")) == [sent]
    assert of(pub("OFFSETID", "false"))[0].result == "failure"


def test_a_batch_is_found_by_each_of_its_ids() -> None:
    assert len(of(pub("OFFSETID", "true", message_id=f"OTHER,{ID}"))) == 1
    assert of(pub("OFFSETID", "true", message_id="OTHER")) == []


def test_begin_and_end_of_a_delivery_are_one_step_wherever_they_stand() -> None:
    before = record("SubBefore", 2000, "DefaultRegion", "cg", "r1", ID, 2, "k")
    after = record("SubAfter", "r1", ID, 7, "false", "k", 2, 2007, "cg")
    delivery = TraceStep("delivery", instant(2000), "cg", "9.9.9.9:5", "exception", 0.007, redeliveries=2)
    assert of(before, after) == of(after, before) == of(before + after) == [delivery]
    assert of(before)[0].result == "unknown"
    (alone,) = of(after)
    assert (alone.at, alone.group, alone.result, alone.redeliveries) == (
        instant(2000),
        "cg",
        "exception",
        None,
    )
    # Clients before 4.6 write fewer fields, the first ones no reason.
    assert of(record("SubAfter", "r1", ID, 7, "true", "k"))[0].result == "success"
    assert of(record("SubAfter", "r1", ID, 7, "false", "k", 1))[0].result == "timeout"


def test_ends_of_transactions_and_recalls_are_steps_too() -> None:
    end = record(
        "EndTransaction", 3000, "r", "pg", "orders", ID, *["null"] * 3, 2, "T", "ROLLBACK_MESSAGE", "true"
    )
    recall = record("Recall", 4000, "r", "pg", "orders", ID, "true")
    assert [(step.kind, step.at, step.result) for step in of(recall, end)] == [
        ("transaction", instant(3000), "ROLLBACK_MESSAGE"),
        ("recall", instant(4000), "success"),
    ]


def test_records_that_cannot_be_read_are_left_out() -> None:
    broken = [
        "",
        RECORD,
        FIELD,
        "Pub",
        record("Pub", "x"),
        pub("true", cost_ms="soon"),
        record("Other", 1, ID),
    ]
    assert of(*broken) == []
    assert len(of(*broken, pub("OFFSETID", "true"))) == 1
