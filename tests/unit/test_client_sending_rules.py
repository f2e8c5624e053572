"""The retry budget, and the messages that are refused before sending."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.client.producer.budget import RetryBudget, retryable_code
from orbitmq.client.producer.request_reply import _host
from orbitmq.client.validation import (
    check_batch,
    check_group,
    check_message,
    check_send_topic,
    check_topic,
)
from orbitmq.durations import instant
from orbitmq.errors import ValidationError
from orbitmq.message.model import Message
from orbitmq.message.reserved import FORBIDDEN_SEND_TOPICS


@pytest.mark.behaviour("SK-01")
def test_as_many_attempts_as_one_plus_the_retries() -> None:
    budget = RetryBudget(3000, 3)
    assert [budget.begin_attempt(0) is not None for _ in range(4)] == [True, True, True, False]


@pytest.mark.behaviour("SK-02")
def test_no_attempt_after_the_deadline() -> None:
    budget = RetryBudget(3100, 3)
    assert budget.begin_attempt(3100) is None
    assert not budget.may_retry(3100)
    assert budget.remaining_ms(3100) == 0


@pytest.mark.behaviour("SK-03")
def test_an_attempt_is_capped_while_others_remain() -> None:
    budget = RetryBudget(3000, 2, 200)
    assert budget.begin_attempt(0) == 200
    assert budget.begin_attempt(200) == 2800


@pytest.mark.behaviour("SK-02")
def test_a_frozen_broker_leaves_time_for_the_others() -> None:
    budget = RetryBudget(3000, 3)
    assert budget.begin_attempt(0) == 1000
    assert budget.begin_attempt(1000) == 1000
    assert budget.begin_attempt(2000) == 1000


def test_without_an_alternative_the_attempt_gets_all_time() -> None:
    assert RetryBudget(3000, 3).begin_attempt(0, alternatives=False) == 3000


@given(
    st.floats(1, 60_000),
    st.integers(1, 10),
    st.one_of(st.none(), st.floats(1, 5000)),
    st.lists(st.floats(0, 1), max_size=12),
    st.booleans(),
)
def test_attempts_never_exceed_the_whole(
    timeout: float, attempts: int, cap: float | None, used: list[float], alternatives: bool
) -> None:
    budget = RetryBudget(timeout, attempts, cap)
    now = 0.0
    begun = 0
    for part in used:
        limit = budget.begin_attempt(now, alternatives=alternatives)
        if limit is None:
            break
        begun += 1
        assert 0 < limit <= timeout - now + 1e-6
        if alternatives and begun < attempts and timeout - now >= 2 * attempts:
            assert limit < timeout - now
        now += limit * part
    assert begun <= attempts


@pytest.mark.behaviour("SK-05")
@pytest.mark.parametrize("code", [17, 14, 1, 2, 16, 204, 205, 1500])
def test_codes_that_another_broker_may_better(code: int) -> None:
    assert retryable_code(code)


@pytest.mark.behaviour("SK-05")
def test_other_codes_are_final_unless_the_user_says_so() -> None:
    assert not retryable_code(13)
    assert retryable_code(13, {13})


@pytest.mark.behaviour("MV-02")
def test_empty_and_oversized_bodies_are_refused() -> None:
    with pytest.raises(ValidationError, match="must not be empty") as caught:
        check_message(Message("t", b""))
    assert caught.value.code == 13
    with pytest.raises(ValidationError, match="4194305 bytes is over the limit of 4194304"):
        check_message(Message("t", bytes(4194305)))
    check_message(Message("t", bytes(4194304)))
    with pytest.raises(ValidationError, match="a Message is needed, got str"):
        check_message("text")  # type: ignore[arg-type]
    with pytest.raises(ValidationError, match="must be bytes or a str, got NoneType"):
        Message("t", None)  # type: ignore[arg-type]
    message = Message("t", b"x")
    message.body = None  # type: ignore[assignment]
    with pytest.raises(ValidationError, match="must be bytes, got NoneType"):
        check_message(message)


@pytest.mark.behaviour("MV-03")
@pytest.mark.parametrize("topic", ["", " ", "a b", "a/b", "täg", "a.b", "t" * 128, "../x", "a\n"])
def test_bad_topics_are_refused(topic: str) -> None:
    with pytest.raises(ValidationError, match="topic"):
        check_topic(topic)


@pytest.mark.behaviour("MV-03")
@pytest.mark.parametrize("topic", ["a", "%RETRY%group", "a|b", "A-1_2", "t" * 127])
def test_good_topics_pass(topic: str) -> None:
    check_topic(topic)


@pytest.mark.behaviour("MV-04")
@pytest.mark.parametrize("group", ["", "g" * 121, "a b", "DEFAULT_PRODUCER", "DEFAULT_CONSUMER"])
def test_bad_groups_are_refused(group: str) -> None:
    with pytest.raises(ValidationError, match="group"):
        check_group(group)
    check_group("g" * 120)


@pytest.mark.behaviour("MV-05")
def test_the_brokers_own_topics_are_forbidden() -> None:
    forbidden = {
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
    }
    assert forbidden == FORBIDDEN_SEND_TOPICS
    for topic in forbidden:
        with pytest.raises(ValidationError, match="forbidden"):
            check_send_topic(topic)


@pytest.mark.behaviour("MV-06")
def test_multi_dispatch_must_not_name_a_path() -> None:
    with pytest.raises(ValidationError, match="INNER_MULTI_DISPATCH"):
        check_message(Message("t", b"x", properties={"INNER_MULTI_DISPATCH": "a,../b"}))


@pytest.mark.behaviour("BA-01")
def test_a_batch_has_one_topic() -> None:
    with pytest.raises(ValidationError, match="one topic"):
        check_batch([Message("a", b"x"), Message("b", b"x")])
    with pytest.raises(ValidationError, match="at least one"):
        check_batch([])


@pytest.mark.behaviour("BA-02")
def test_what_cannot_travel_in_a_batch() -> None:
    with pytest.raises(ValidationError, match="delayed"):
        check_batch([Message("t", b"x", delay_level=1)])
    with pytest.raises(ValidationError, match="delayed"):
        check_batch([Message("t", b"x", properties={"TIMER_DELAY_SEC": "5"})])
    with pytest.raises(ValidationError, match="retry topic"):
        check_batch([Message("%RETRY%g", b"x")])
    with pytest.raises(ValidationError, match="WAIT"):
        check_batch([Message("t", b"x"), Message("t", b"x", properties={"WAIT": "false"})])
    with pytest.raises(ValidationError, match="WAIT"):
        check_batch([Message("t", b"x", properties={"WAIT": "false"}), Message("t", b"x")])
    with pytest.raises(ValidationError, match="delayed"):
        check_batch([Message("t", b"x"), Message("t", b"x", delay=5)])
    check_batch([Message("t", b"x"), Message("t", b"x", properties={"WAIT": "TRUE", "DELAY": "0"})])


def test_a_time_of_delivery_becomes_a_property() -> None:
    assert Message("t", b"x", delay=1.2345).properties == {"TIMER_DELAY_MS": "1235"}
    assert Message("t", b"x", delay=0.0001).properties == {"TIMER_DELAY_MS": "1"}
    assert Message("t", b"x", deliver_at=instant(1_700_000_000_000)).properties == {
        "TIMER_DELIVER_MS": "1700000000000"
    }


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"delay": 0}, "delay must be above 0 to .* seconds, got 0"),
        ({"delay": -1}, "got -1"),
        ({"delay": float("nan")}, "got nan"),
        ({"delay": "soon"}, "got 'soon'"),
        ({"delay": True}, "got True"),
        ({"delay": 1, "delay_level": 3}, "delay_level=3 and delay=1"),
        ({"delay": 1, "deliver_at": instant(3)}, "delay=1 and deliver_at=datetime"),
    ],
)
def test_a_time_that_is_none_is_refused_at_once(values: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Message("t", b"x", **values)


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("/1.2.3.4:5", ("1.2.3.4", 5)),
        ("1.2.3.4:5", ("1.2.3.4", 5)),
        ("somewhere:5", ("0.0.0.0", 5)),
        ("1.2.3.4:99999999999", ("1.2.3.4", 0)),
        ("1.2.3.4", ("0.0.0.0", 0)),
    ],
)
def test_the_host_of_a_reply_is_read_whatever_it_is(text: str, host: tuple[str, int]) -> None:
    assert _host(text) == host
