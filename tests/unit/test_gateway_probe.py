"""The state that a response to the probe shows, wherever the response is cut."""

from __future__ import annotations

import struct

import pytest

from orbitmq.gateway.probe import QUESTION, ServerKind, found_in

SETTINGS = struct.pack(">HBBBIHI", 0, 6, 4, 0, 0, 3, 100)
PONG = QUESTION[-17:-13] + b"\x01" + QUESTION[-12:]
GOAWAY = struct.pack(">HBBBIII", 0, 8, 7, 0, 0, 0, 2)


@pytest.mark.behaviour("GW-40")
@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (SETTINGS + PONG, ServerKind.HTTP2),
        (SETTINGS + GOAWAY, ServerKind.OTHER),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", ServerKind.OTHER),
        (SETTINGS + bytes(20_000), ServerKind.OTHER),
    ],
)
def test_an_answer_shows_what_is_there(answer: bytes, found: ServerKind) -> None:
    assert found_in(answer) is found


@pytest.mark.behaviour("GW-40")
def test_a_part_of_an_answer_shows_nothing_yet() -> None:
    whole = SETTINGS + PONG
    assert [found_in(whole[:cut]) for cut in range(len(whole))] == [None] * len(whole)
