"""The properties of a message that are dropped when the broker's own do not fit beside them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from orbitmq.broker.messaging.retry import mark_dead
from orbitmq.broker.messaging.room import EXPENDABLE, fitted, fitted_copy
from orbitmq.message.properties import MAX_PROPERTIES_BYTES, decode_properties, encode_properties
from orbitmq.message.record import Record

LONG = {"a": "x" * 32_700}  # 32,703 bytes
VALUES = st.text("xyz", min_size=1, max_size=12)


@given(
    ours=st.dictionaries(st.sampled_from(EXPENDABLE), VALUES),
    others=st.dictionaries(st.sampled_from(["k", "UNIQ_KEY", "REAL_TOPIC", "DELAY"]), VALUES),
    limit=st.integers(0, 300),
)
def test_only_what_is_expendable_goes_and_the_least_missed_first(
    ours: dict[str, str], others: dict[str, str], limit: int
) -> None:
    properties = {**ours, **others}
    encoded = fitted(properties, limit)
    if encoded is None:
        assert properties == others
        assert len(encode_properties(others)) > limit
        return
    assert encoded == encode_properties(properties)
    assert len(encoded) <= limit
    gone = [name for name in EXPENDABLE if name in ours and name not in properties]
    assert others.items() <= properties.items()
    assert gone == [name for name in EXPENDABLE if name in ours][: len(gone)]
    if gone:
        assert len(encode_properties({**properties, gone[-1]: ours[gone[-1]]})) > limit


def test_properties_that_fit_stay_as_they_are() -> None:
    properties = {**LONG, "RETRY_TOPIC": "T", "WAIT": "false"}
    before = dict(properties)
    assert fitted(properties) == encode_properties(before)
    assert properties == before


def test_a_dead_letter_keeps_what_is_missed_most() -> None:
    properties = {**LONG, "RETRY_TOPIC": "T", "ORIGIN_MESSAGE_ID": "m"}
    mark_dead(properties, "because", "me")
    encoded = fitted(properties)
    assert encoded is not None
    assert MAX_PROPERTIES_BYTES - 32 < len(encoded) <= MAX_PROPERTIES_BYTES
    assert decode_properties(encoded) == properties
    assert properties == {**LONG, "RETRY_TOPIC": "T", "ORIGIN_MESSAGE_ID": "m", "DLQ_ORIGIN_TOPIC": "T"}


def test_a_copy_that_does_not_fit_has_the_properties_of_its_record() -> None:
    block = b"a\x01" + b"\xff" * 30_000 + b"\x02"
    record = Record(topic="T", body=b"x", properties=block)
    assert fitted_copy(record, {**decode_properties(block), "RETRY_TOPIC": "T"}) == block
    plain = Record(topic="T", body=b"x", properties=encode_properties(LONG))
    assert fitted_copy(plain, {**LONG, "RETRY_TOPIC": "T"}) == encode_properties({**LONG, "RETRY_TOPIC": "T"})
