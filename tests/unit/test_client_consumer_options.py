"""Options that would let a consumer wait for ever are refused."""

from __future__ import annotations

from typing import Any, cast

import pytest

from orbitmq import Consumer, PullConsumer
from orbitmq.client.consumer.puller import FlowLimits
from orbitmq.errors import ValidationError


@pytest.mark.parametrize("wrong", ["first", 0, None])
def test_a_place_to_begin_at_is_a_consume_from(wrong: Any) -> None:
    words = r"consume_from must be one of ConsumeFrom\.LAST, .*ConsumeFrom\.FIRST"
    with pytest.raises(ValidationError, match=words):
        Consumer("g", consume_from=cast(Any, wrong))
    with pytest.raises(ValidationError, match=words):
        PullConsumer("g", consume_from=cast(Any, wrong))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"concurrency": 0}, "concurrency must be 1 to 10,000, got 0"),
        ({"concurrency": "many"}, "concurrency must be 1 to 10,000, got 'many'"),
        ({"pull_batch_size": 1025}, "pull_batch_size must be 1 to 1,024, got 1025"),
        ({"max_reconsume_times": -2}, "max_reconsume_times must be -1 to"),
        ({"consume_timeout": 0}, "consume_timeout must be 0.001 to 604,800 seconds"),
        ({"close_timeout": -1}, "close_timeout must be 0 to"),
    ],
)
def test_an_option_out_of_its_range_is_named(options: Any, text: str) -> None:
    with pytest.raises(ValidationError, match=text):
        Consumer("g", **options)


def test_options_of_other_consumers_are_checked_alike() -> None:
    with pytest.raises(ValidationError, match="pull_batch_size"):
        PullConsumer("g", pull_batch_size=0)
    with pytest.raises(ValidationError, match="consume_timeout"):
        PullConsumer("g", consume_timeout=-1)
    with pytest.raises(ValidationError, match="span of the flow limits must be 1 or more, got 0"):
        FlowLimits(span=0)
