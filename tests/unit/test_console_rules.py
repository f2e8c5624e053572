"""The console's rules without a cluster: bodies in three forms, and dead letters that are chosen."""

from __future__ import annotations

import pytest

from orbitmq import ValidationError
from orbitmq.console.bodies import MOST_BYTES, shown
from orbitmq.console.choice import ranges
from orbitmq.wording import masked


@pytest.mark.behaviour("CS-21")
def test_a_body_is_text_json_or_hexadecimal_and_never_longer_than_the_limit() -> None:
    assert shown(b"a\xff", "text") == "a\N{REPLACEMENT CHARACTER}"
    assert shown(b'{"a":1}', "json") == '{\n  "a": 1\n}'
    assert shown(b"{", "json").startswith("not JSON: ")
    assert shown(bytes(range(17)), "hex").splitlines()[1] == "00000010  10"
    assert len(shown(b"x" * (MOST_BYTES + 1), "text")) == MOST_BYTES


@pytest.mark.behaviour("CS-24")
def test_chosen_dead_letters_are_ranges_by_broker() -> None:
    assert ranges(" ") is None
    assert ranges("b:7, a:3,b:1-2") == {"a": [(3, 4)], "b": [(1, 3), (7, 8)]}
    for wrong in ("a", "a:", "a:2-1", "a:x", "a:1-", ":1"):
        with pytest.raises(ValidationError, match="expected BROKER:OFFSET"):
            ranges(wrong)


@pytest.mark.behaviour("CS-09")
def test_a_setting_with_a_secret_is_masked() -> None:
    shown_settings = [masked(key, "x") for key in ("initAuthenticationUser", "metricsToken", "listenPort")]
    assert shown_settings == ["***", "***", "x"]
    assert masked("secretKey", "") == ""
