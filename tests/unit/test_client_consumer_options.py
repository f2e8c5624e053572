"""Options of consumers that would leave them waiting are refused."""

from __future__ import annotations

from typing import Any, cast

import pytest

from orbitmq import AssignedConsumer, Consumer
from orbitmq.errors import ValidationError


@pytest.mark.parametrize("wrong", ["first", 0, None])
def test_a_place_to_begin_at_is_a_consume_from(wrong: Any) -> None:
    words = r"consume_from must be one of ConsumeFrom\.LAST, .*ConsumeFrom\.FIRST"
    with pytest.raises(ValidationError, match=words):
        Consumer("g", consume_from=cast(Any, wrong))
    with pytest.raises(ValidationError, match=words):
        AssignedConsumer("g", consume_from=cast(Any, wrong))
